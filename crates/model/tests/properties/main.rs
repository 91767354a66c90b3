//! The model's properties, over fences and keys chosen to break them.

mod decode;
mod oracle;
mod piecewise;
mod promise;
mod quality;
