//! Several hosts: a server and its clients in network namespaces of their own, over cables that lose
//! packets, go slow, or are cut. Needs root, iproute2 and nftables; what cannot run says so.

mod cables;
mod namespaces;
