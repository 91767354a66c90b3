//! A connection in a forked child.

use farsight_base::{RegionId, RemoteAddress};
use farsight_fabric::{Connection, FabricError, Host, QueuePair, ReadMode, RegionRights};

use farsight_fabric_shm::OwnProcess;

use crate::harness::{Directory, Running, call, connect, isolated};

#[test]
fn a_forked_child_gets_errors_and_the_parent_goes_on() {
    isolated("fork::a_forked_child_gets_errors_and_the_parent_goes_on", || {
        let directory = Directory::new();
        let server = Running::start(&directory.socket());
        let region = server.host.create_region(4096, RegionRights::ReadOnly).expect("a region");
        let connection = connect(&directory.socket());
        let mut queue = connection.open_queue().expect("a queue");
        let process = OwnProcess::mark().expect("a page");
        assert!(process.is_this());
        queue.attach(region.id()).expect("the region attaches");

        // SAFETY: the child uses this client, its allocator (which survives a fork) and _exit; it takes no
        // lock that another thread of the parent may hold.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "fork failed");
        if child == 0 {
            let from = RemoteAddress { region: region.id(), offset_bytes: 0 };
            queue.post_read(0, from, 1, ReadMode::Plain);
            let outcomes = [
                queue.doorbell(),
                queue.poll().map(drop),
                queue.wait(std::time::Duration::from_secs(1)),
                queue.attach(RegionId(9)).map(drop),
                connection.open_queue().map(drop),
            ];
            let refused =
                outcomes.iter().filter(|outcome| matches!(outcome, Err(FabricError::Forked))).count();
            let takes_itself_for_the_parent = usize::from(process.is_this());
            drop(queue);
            drop(connection);
            // SAFETY: it takes a number and ends the process, without the parent's destructors.
            unsafe { libc::_exit((outcomes.len() - refused + takes_itself_for_the_parent) as i32) };
        }
        let mut status = 0;
        // SAFETY: `status` is live and the call writes one int.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(waited, child);
        assert!(libc::WIFEXITED(status), "the child died: {status:#x}");
        assert_eq!(libc::WEXITSTATUS(status), 0, "so many calls were not refused in the child");

        assert_eq!(call(&mut queue, b"the parent"), b"the parent");
        assert_eq!(server.host.client_count(), 1, "the child's exit is not the client's");
    });
}
