//! What TCP alone has to stand: hostile and silent peers, certificates, crowds, regions taken away.

mod certificates;
mod crowd;
mod engine;
mod engine_suite;
mod hostile;
mod life;
mod raw;
mod tls;
