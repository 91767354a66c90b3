//! The model's properties, over fences and keys chosen to break them.

mod decode;
mod oracle;
mod promise;
mod quality;
