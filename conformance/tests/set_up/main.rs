//! Ways in which no connection comes about, and whether what is said then helps. Those of RDMA are in
//! `verbs`.

mod causes;
#[path = "../tcp/certificates.rs"]
mod certificates;
mod shm;
mod tcp;
