//! One operation as a future.
//!
//! Invariant: the future holds a slot of the queue from its first poll until it is ready or dropped, and no
//! longer.

use std::pin::Pin;
use std::task::{Context, Poll};

use farsight_fabric::FabricError;

use super::held_key::HeldKey;
use super::queue::{Completion, Request, SlotIndex};
use super::shared::{Shared, Submission};

/// A request, and then its answer with the value that a GET found.
#[must_use = "futures do nothing unless they are awaited"]
pub(super) struct Operation<'a, H: HeldKey> {
    shared: &'a Shared<H>,
    progress: Progress<'a, H>,
}

enum Progress<'a, H> {
    /// Not polled yet: the request, with the value that it writes.
    Asked(Option<Request<H>>, &'a [u8]),
    Queued(SlotIndex),
    Ended,
}

impl<'a, H: HeldKey> Operation<'a, H> {
    pub(super) fn new(shared: &'a Shared<H>, request: Request<H>, value: &'a [u8]) -> Self {
        Self { shared, progress: Progress::Asked(Some(request), value) }
    }
}

/// Nothing in it is pinned.
impl<H: HeldKey> Unpin for Operation<'_, H> {}

impl<H: HeldKey> Future for Operation<'_, H> {
    /// Fails only with [`FabricError::Forked`], which no driver can tell.
    type Output = Result<(Completion, Vec<u8>), FabricError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let shared = self.shared;
        match &mut self.progress {
            Progress::Asked(request, value) => {
                let request = request.take().expect("a request leaves at the first poll");
                match shared.submit(request, value, context.waker().clone()) {
                    Submission::Queued(slot) => {
                        self.progress = Progress::Queued(slot);
                        Poll::Pending
                    }
                    Submission::Forked => {
                        self.progress = Progress::Ended;
                        Poll::Ready(Err(FabricError::Forked))
                    }
                }
            }
            Progress::Queued(slot) => match shared.collect(*slot, context) {
                Some(answer) => {
                    self.progress = Progress::Ended;
                    Poll::Ready(Ok(answer))
                }
                None => Poll::Pending,
            },
            Progress::Ended => panic!("polled after it was ready"),
        }
    }
}

impl<H: HeldKey> Drop for Operation<'_, H> {
    fn drop(&mut self) {
        if let Progress::Queued(slot) = self.progress {
            self.shared.abandon(slot);
        }
    }
}
