//! What `farsight bench ycsb --help` says below its options.

pub(super) const YCSB_HELP: &str = "\
Workloads:
  a           read 50 %, update 50 %
  b           read 90 %, update 10 %, as in XStore's Table 1
  b-standard  read 95 %, update 5 %, as in YCSB
  c           read 100 %
  d           read 95 %, insert 5 %; the latest inserts are the most read
  e           scan 95 % (1 to 100 pairs, uniform), insert 5 %
  f           read 50 %, read-modify-write 50 %
  all         a, b, c, d, e, f

How it measures:
  The server is a process of its own, kept on the first core and stopped at
  the end; client threads live in this process, on the other cores. With
  --engine rolex or xstore-d it starts memory nodes, all on the first core;
  with several engines, all of them run each workload, one after the other.
  With --connect it uses a running server instead, or a pool's memory nodes, in
  new tables, one for each run of a workload that inserts. It drops each when its
  runs are done. Processes of `farsight compute-node` take part then.
  With --fabric tcp the server listens on loopback, too, and clients come that
  way: no limit of this machine's memory is shown beside that.

  Before each run the client's cache is filled and the run warmed up. Each
  thread's operations are drawn before the clock starts, keys and all, into a
  ring of up to 4 million (2 million a second of run). The time of a run has
  their copy out of that ring, 16 bytes an operation, but no drawing; a run
  longer than its ring meets the same operations again. A batch
  is executed kind by kind (inserts, reads, scans, read-modify-writes,
  updates); an operation's latency is that of its batch, so it grows with
  --batch. With --batch 1 each goes by the session's way for a single
  operation (a get of a short value is one READ, not two) and has a latency of
  its own, in which one look at the clock is counted; 'of limit' is then of
  unchecked walks one at a time. Workloads that insert get a freshly loaded
  table for each run.

  --aged runs each workload on two tables of the same keys, in turns: a fresh
  one, from one bulk load, and one of which a random half was loaded and the
  others inserted, in random order. Both are measured once their models are
  trained. Lines and the JSON field `table` say which is which.

  Every answer is checked: each value carries its key. A wrong one is an error.

  'of limit' compares with the unchecked walk of the same layout with 8 B
  values, or on to blocks of the same length, measured before each run on the
  same cores and pages. Limits count the processor time of a thread, rates
  wall time; where other programs took cores away from the clients, a line
  below the table says how much.

Examples:
  farsight bench
  farsight bench ycsb --dataset uniform --keys 10000000 --workload c
  farsight dataset longitudes
  farsight bench ycsb --dataset longitudes --workload c
  farsight bench ycsb --access rpc          the server searches, for comparison
  farsight bench ycsb --distribution zipfian --json results.json
  farsight bench ycsb --workload c --batch 1   the latency of a single get
  farsight bench ycsb --workload c --aged --dataset uniform --keys 10000000
  farsight bench ycsb --fabric tcp --workload c --batch 256
  farsight bench ycsb --values blocks --value-size 1024 --workload c
  farsight bench ycsb --data /var/tmp/bench --workload a --batch 2048   durable writes
  farsight bench ycsb --engine xstore,xstore-d,rolex --dataset lognormal
  farsight bench ycsb --connect shm:///tmp/a,shm:///tmp/b   a pool of two memory nodes
  farsight bench ycsb --connect rdma://10.0.0.1:7474 --allow-plaintext   another host

Without the hardware (docs/prices.md):
  --fabric sim runs the same server and as many sessions as the testbed of
  --profile has client threads in virtual time, a few milliseconds of it, over
  cards, links and cores that have prices and queues. Rates, latencies and the
  part that limits them are then the testbed's, not this machine's, and two
  runs are equal. --sensitivity varies each uncertain price over its band.

  farsight bench ycsb --fabric sim --workload c --batch 4
  farsight bench ycsb --fabric sim --profile cx5 --clients 8x24 --access rpc
  farsight bench ycsb --fabric sim --profile my.toml --workload c --sensitivity";
