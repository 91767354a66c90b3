//! XStore: a server-side tree and a learned cache at the client.
