//! Who watches the writes of stamped lines: a simulator, and nobody else.
//!
//! Invariant: what a writer stores is the same whether it is watched or not. An observer belongs to one
//! thread and hears of that thread's writes alone.
//!
//! Protocol: [`begin_write`](crate::words::begin_write) and [`end_write`](crate::words::end_write) are the
//! only places at which a writer's stores are ordered. So they are the only ones that tell. They tell the
//! observer *after* the odd stamp and its fence, and *before* the even stamp. What changed in open lines
//! since it was last told was stored in between, in an order that nothing fixes.
//!
//! Cost where nobody watches in the whole process: one load of a flag that never changes.

use std::cell::RefCell;
use std::rc::Rc;

use crate::Stamp;
use crate::sync::{AtomicU64, Ordering, process};

/// What is told of one thread's writes.
pub trait WriteObserver {
    /// `line`, whose stamp was `before`, has been opened: its stamp is odd and a Release fence has passed.
    fn opened(&self, line: &[AtomicU64], before: Stamp);

    /// `line` is about to be closed by a Release store of `after`.
    fn closing(&self, line: &[AtomicU64], after: Stamp);
}

/// True once any thread has had an observer.
static WATCHED: process::AtomicBool = process::AtomicBool::new(false);

thread_local! {
    static OBSERVER: RefCell<Option<Rc<dyn WriteObserver>>> = const { RefCell::new(None) };
}

/// Sets this thread's observer, or takes it away; returns the one before.
pub fn observe_writes(observer: Option<Rc<dyn WriteObserver>>) -> Option<Rc<dyn WriteObserver>> {
    if observer.is_some() {
        // Relaxed: a thread sees its own store, and no other thread needs to.
        WATCHED.store(true, Ordering::Relaxed);
    }
    OBSERVER.with(|own| own.replace(observer))
}

/// True if some thread of this process has, or had, an observer.
#[inline(always)]
pub(crate) fn is_watched() -> bool {
    // Relaxed: as in `observe_writes`.
    WATCHED.load(Ordering::Relaxed)
}

/// Tells this thread's observer, if it has one, of a line that was opened.
#[cold]
#[inline(never)]
pub(crate) fn tell_opened(line: &[AtomicU64], before: Stamp) {
    if let Some(observer) = own_observer() {
        observer.opened(line, before);
    }
}

/// Tells this thread's observer, if it has one, of a line that will be closed with `stamp`'s next version.
#[cold]
#[inline(never)]
pub(crate) fn tell_closing(line: &[AtomicU64], stamp: Stamp) {
    if let Some(observer) = own_observer() {
        observer.closing(line, stamp.written());
    }
}

fn own_observer() -> Option<Rc<dyn WriteObserver>> {
    OBSERVER.with(|own| own.borrow().clone())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::WORDS_PER_LINE;
    use crate::words::{begin_write, end_write};

    #[derive(Default)]
    struct Notes(RefCell<Vec<(&'static str, u64, u64)>>);

    impl WriteObserver for Notes {
        fn opened(&self, line: &[AtomicU64], before: Stamp) {
            self.0.borrow_mut().push(("opened", before.0, line[0].load(Ordering::Relaxed)));
        }

        fn closing(&self, line: &[AtomicU64], after: Stamp) {
            self.0.borrow_mut().push(("closing", line[3].load(Ordering::Relaxed), after.0));
        }
    }

    fn write(line: &[AtomicU64], word: u64) {
        let stamp = begin_write(line);
        line[3].store(word, Ordering::Relaxed);
        end_write(line, stamp);
    }

    #[test]
    fn an_observer_hears_of_its_own_threads_writes_in_their_order() {
        let line: [AtomicU64; WORDS_PER_LINE] = std::array::from_fn(|_| AtomicU64::new(0));
        let notes = Rc::new(Notes::default());
        assert!(observe_writes(Some(Rc::clone(&notes) as Rc<dyn WriteObserver>)).is_none());
        write(&line, 77);
        std::thread::scope(|scope| scope.spawn(|| write(&line, 88)).join().expect("a write"));
        assert!(observe_writes(None).is_some());
        write(&line, 99);
        assert_eq!(*notes.0.borrow(), [("opened", 0, 1), ("closing", 77, 2)]);
        assert_eq!(line[0].load(Ordering::Relaxed), 6, "watched or not, the stores are the same");
    }
}
