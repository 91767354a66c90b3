//! Engines over nodes that any of them may have tables on: the suite of the engine contract, and what each
//! engine promises besides. One program, because the fabrics' generic code is the same for all of them.

mod durable;
mod flexkv;
mod maps;
mod names;
mod reference;
mod rolex;
mod x_store_d;
