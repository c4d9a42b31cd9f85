//! The way of events out of a node: a cloneable handle, one queue, one output thread.

use std::{
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use super::{
    board::Board,
    event::{Event, Stamped},
    queue::Queue,
    sink::Sink,
};

/// Time that the output thread gets at the end to write what is queued: a reader that does not
/// read must not keep the process alive.
const DRAIN: Duration = Duration::from_secs(2);

/// A handle through which every part of a node says what happens. It never blocks.
#[derive(Clone)]
pub struct Emitter {
    queue: Arc<Queue>,
    board: Board,
}

/// The output end, held by the main function.
pub struct Output {
    queue: Arc<Queue>,
    done: mpsc::Receiver<()>,
}

impl Emitter {
    /// An emitter that writes to `sink` on a thread of its own.
    pub fn new(mut sink: Box<dyn Sink>) -> (Self, Output) {
        let queue = Arc::new(Queue::default());
        let (finished, done) = mpsc::channel();
        let source = Arc::clone(&queue);
        thread::spawn(move || {
            while let Some(stamped) = source.pop() {
                sink.write(&stamped);
            }
            sink.finish();
            let _ = finished.send(());
        });
        (Self { queue: Arc::clone(&queue), board: Board::default() }, Output { queue, done })
    }

    /// An emitter that nobody listens to.
    pub fn silent() -> Self {
        let queue = Arc::new(Queue::default());
        queue.close();
        Self { queue, board: Board::default() }
    }

    /// Says that something happened, now.
    pub fn emit(&self, event: Event) {
        let stamped = Stamped::now(event);
        self.board.record(&stamped);
        self.queue.push(stamped);
    }

    /// Where the node stands, as its events tell.
    pub fn board(&self) -> &Board {
        &self.board
    }
}

impl Output {
    /// Writes what is queued and ends the output thread, within two seconds.
    pub fn finish(self) {
        self.queue.close();
        let _ = self.done.recv_timeout(DRAIN);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    struct Collect(Arc<Mutex<Vec<Stamped>>>);

    impl Sink for Collect {
        fn write(&mut self, stamped: &Stamped) {
            self.0.lock().unwrap().push(stamped.clone());
        }
    }

    struct Blocked;

    impl Sink for Blocked {
        fn write(&mut self, _: &Stamped) {
            thread::sleep(Duration::from_secs(3600));
        }
    }

    #[test]
    fn what_was_emitted_is_written_before_the_end() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (emitter, output) = Emitter::new(Box::new(Collect(Arc::clone(&seen))));
        for round in 0..100 {
            emitter.emit(Event::Snapshot { round, bytes: 1, seconds: 0.1 });
        }
        output.finish();
        assert_eq!(seen.lock().unwrap().len(), 100);
        emitter.emit(Event::Snapshot { round: 0, bytes: 1, seconds: 0.1 });
    }

    #[test]
    fn a_reader_that_does_not_read_holds_nobody_up() {
        let (emitter, output) = Emitter::new(Box::new(Blocked));
        let before = std::time::Instant::now();
        for round in 0..20_000 {
            emitter.emit(Event::Snapshot { round, bytes: 1, seconds: 0.1 });
        }
        output.finish();
        assert!(before.elapsed() < Duration::from_secs(10));
    }
}
