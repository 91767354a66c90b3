//! What models are made of, whichever checker runs them.
//!
//! Loom tries all schedules with few preemptions. But it forgets a load once another thread has loaded the
//! same word, and with it the schedules in which a store came before that load. So a model looks more than
//! once. It also runs under shuttle, which forgets nothing and draws its schedules at random.

#[cfg(loom)]
pub use loom::thread;
#[cfg(shuttle)]
pub use shuttle::thread;

/// Schedules that shuttle draws for one model, one half with equal chances, the other with few preemptions.
#[cfg(shuttle)]
const SCHEDULES: usize = 2_000;

/// Runs `model` under many schedules: with loom, all that have at most `preemptions`.
///
/// # Panics
/// If the model does, or if its threads wait for each other.
#[cfg(loom)]
pub fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(model);
}

/// As under loom; `preemptions` are those of the schedules that have few.
///
/// # Panics
/// If the model does, or if its threads wait for each other.
#[cfg(shuttle)]
pub fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
    use shuttle::{Config, Runner};

    fn run(scheduler: impl Scheduler + 'static, model: impl Fn() + Send + Sync + 'static) {
        let mut config = Config::new();
        config.silence_warnings = true;
        Runner::new(scheduler, config).run(model);
    }

    let model = std::sync::Arc::new(model);
    let again = std::sync::Arc::clone(&model);
    run(RandomScheduler::new(SCHEDULES / 2), move || model());
    run(PctScheduler::new(preemptions.max(1), SCHEDULES / 2), move || again());
}

/// A wake-up that lasts until it is waited for, as a byte in a socket does. One thread waits.
#[cfg(loom)]
#[derive(Debug)]
pub struct WakeUp(loom::sync::Notify);

#[cfg(loom)]
impl WakeUp {
    /// None sent.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "its life is one schedule's")]
    pub fn new() -> Self {
        Self(loom::sync::Notify::new())
    }

    /// Sends one.
    pub fn send(&self) {
        self.0.notify();
    }

    /// Waits until one was sent, and takes it.
    pub fn wait(&self) {
        self.0.wait();
    }
}

/// A wake-up that lasts until it is waited for, as a byte in a socket does. One thread waits.
#[cfg(shuttle)]
#[derive(Debug)]
pub struct WakeUp {
    is_sent: shuttle::sync::Mutex<bool>,
    changed: shuttle::sync::Condvar,
}

#[cfg(shuttle)]
impl WakeUp {
    /// None sent.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "its life is one schedule's")]
    pub fn new() -> Self {
        Self { is_sent: shuttle::sync::Mutex::new(false), changed: shuttle::sync::Condvar::new() }
    }

    /// Sends one.
    pub fn send(&self) {
        *self.is_sent.lock().expect("models end with the first panic") = true;
        self.changed.notify_one();
    }

    /// Waits until one was sent, and takes it.
    pub fn wait(&self) {
        let mut is_sent = self.is_sent.lock().expect("models end with the first panic");
        while !*is_sent {
            is_sent = self.changed.wait(is_sent).expect("models end with the first panic");
        }
        *is_sent = false;
    }
}
