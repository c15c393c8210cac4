//! fe2o3-amqp, an AMQP 1.0 client for Rust that knows nothing of Service Bus: sending, receiving, deciding, selectors,
//! browsing, nodes of one's own and transactions, where it applies on plain and partitioned queues.

use std::env;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fe2o3_amqp::connection::ConnectionHandle;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::transaction::{
    Controller, Transaction, TransactionDischarge, TransactionPosting, TransactionRetirement,
};
use fe2o3_amqp::types::messaging::{ApplicationProperties, DistributionMode, Message, Modified, Source};
use fe2o3_amqp::types::primitives::SimpleValue;
use fe2o3_amqp::{Connection, Delivery, Receiver, Sender, Session};
use fe2o3_amqp_ext::filters::SelectorFilter;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(20);
const A_MOMENT: Duration = Duration::from_millis(300);

static NAMES: AtomicUsize = AtomicUsize::new(0);
static PARTED: AtomicUsize = AtomicUsize::new(0);

/// A queue that is made when it is first named.
fn plain() -> String {
    format!("fe2o3-{}-{}", std::process::id(), NAMES.fetch_add(1, Ordering::SeqCst))
}

/// One of the partitioned queues that were made before.
fn partitioned() -> String {
    format!("parted-{}", PARTED.fetch_add(1, Ordering::SeqCst))
}

async fn connect() -> (ConnectionHandle<()>, SessionHandle<()>) {
    let url = env::var("POLYBUS_URL").expect("the driver says where the bus is");
    let id = format!("fe2o3-{}", NAMES.fetch_add(1, Ordering::SeqCst));
    let mut connection = Connection::open(id, url.as_str()).await.expect("a connection");
    let session = Session::begin(&mut connection).await.expect("a session");
    (connection, session)
}

async fn end(mut connection: ConnectionHandle<()>, mut session: SessionHandle<()>) {
    session.end().await.expect("the session ends");
    connection.close().await.expect("the connection closes");
}

async fn send(session: &mut SessionHandle<()>, queue: &str, count: i64) {
    let mut sender = Sender::attach(session, format!("to {queue}"), queue).await.expect("a sender");
    for number in 0..count {
        let properties = ApplicationProperties::builder().insert("n", SimpleValue::Long(number)).build();
        let message = Message::builder().application_properties(properties).value(number.to_string()).build();
        sender.send(message).await.expect("an outcome").accepted_or_else(|other| other).expect("accepted");
    }
    sender.close().await.expect("the sender closes");
}

async fn receiver(session: &mut SessionHandle<()>, source: impl Into<Source>) -> Receiver {
    let name = format!("from {}", NAMES.fetch_add(1, Ordering::SeqCst));
    Receiver::builder().name(name).source(source).attach(session).await.expect("a receiver")
}

async fn next(receiver: &mut Receiver) -> Delivery<String> {
    timeout(SOON, receiver.recv::<String>()).await.expect("in time").expect("a delivery")
}

async fn nothing(receiver: &mut Receiver) {
    assert!(timeout(A_MOMENT, receiver.recv::<String>()).await.is_err(), "nothing was to come");
}

/// Takes so many, accepts them, and gives their bodies in order of number.
async fn take(session: &mut SessionHandle<()>, source: impl Into<Source>, count: usize) -> Vec<String> {
    let mut from = receiver(session, source).await;
    let mut bodies = Vec::new();
    for _ in 0..count {
        let delivery = next(&mut from).await;
        from.accept(&delivery).await.expect("accepted");
        bodies.push(delivery.body().clone());
    }
    from.close().await.expect("the receiver closes");
    bodies.sort();
    bodies
}

async fn assert_empty(session: &mut SessionHandle<()>, queue: &str) {
    let mut from = receiver(session, queue).await;
    nothing(&mut from).await;
    from.close().await.expect("the receiver closes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sending_and_receiving() {
    for queue in [plain(), partitioned()] {
        let (connection, mut session) = connect().await;
        send(&mut session, &queue, 5).await;
        assert_eq!(take(&mut session, queue.as_str(), 5).await, ["0", "1", "2", "3", "4"]);
        assert_empty(&mut session, &queue).await;
        end(connection, session).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_sends_at_once() {
    for queue in [plain(), partitioned()] {
        let (connection, mut session) = connect().await;
        let mut sender = Sender::attach(&mut session, "many", queue.as_str()).await.expect("a sender");
        let mut under_way = Vec::new();
        for number in 0..50 {
            under_way.push(sender.send_batchable(format!("{number:02}")).await.expect("sent"));
        }
        for outcome in under_way {
            outcome.await.expect("an outcome").accepted_or_else(|other| other).expect("accepted");
        }
        sender.close().await.expect("the sender closes");
        let wanted: Vec<String> = (0..50).map(|number| format!("{number:02}")).collect();
        assert_eq!(take(&mut session, queue.as_str(), 50).await, wanted);
        end(connection, session).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deciding() {
    for queue in [plain(), partitioned()] {
        let (connection, mut session) = connect().await;
        send(&mut session, &queue, 1).await;
        let mut from = receiver(&mut session, queue.as_str()).await;
        let first = next(&mut from).await;
        from.release(&first).await.expect("released");
        let second = next(&mut from).await;
        let again = Modified { delivery_failed: Some(true), undeliverable_here: None, message_annotations: None };
        from.modify(&second, again).await.expect("modified");
        let third = next(&mut from).await;
        let header = third.message().header.as_ref().expect("a header");
        assert_eq!(header.delivery_count, 1, "a release does not count, a failed delivery does");
        from.reject(&third, None).await.expect("rejected");
        nothing(&mut from).await;
        from.close().await.expect("the receiver closes");
        let dead = format!("{queue}/$DeadLetterQueue");
        assert_eq!(take(&mut session, dead.as_str(), 1).await, ["0"]);
        end(connection, session).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receiving_what_a_selector_wants() {
    for queue in [plain(), partitioned()] {
        let (connection, mut session) = connect().await;
        send(&mut session, &queue, 4).await;
        let selector = SelectorFilter(String::from("n >= 2"));
        let source = Source::builder().address(queue.as_str()).add_to_filter("selector", selector).build();
        assert_eq!(take(&mut session, source, 2).await, ["2", "3"]);
        assert_eq!(take(&mut session, queue.as_str(), 2).await, ["0", "1"]);
        end(connection, session).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn looking_at_a_queue_removes_nothing() {
    for queue in [plain(), partitioned()] {
        let (connection, mut session) = connect().await;
        send(&mut session, &queue, 3).await;
        for _ in 0..4 {
            let copy = Source::builder().address(queue.as_str()).distribution_mode(DistributionMode::Copy).build();
            assert_eq!(take(&mut session, copy, 3).await, ["0", "1", "2"]);
        }
        assert_eq!(take(&mut session, queue.as_str(), 3).await, ["0", "1", "2"]);
        end(connection, session).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_ones_own() {
    let (connection, mut session) = connect().await;
    let mut own = receiver(&mut session, Source::builder().dynamic(true).build()).await;
    let source = own.source().as_ref().expect("a source");
    let address = source.address.clone().expect("an address");
    send(&mut session, &address, 1).await;
    let delivery = next(&mut own).await;
    assert_eq!(delivery.body(), "0");
    own.accept(&delivery).await.expect("accepted");
    own.close().await.expect("the receiver closes");
    end(connection, session).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_transaction_sends_is_there_when_it_is_committed() {
    let queue = plain();
    let (connection, mut session) = connect().await;
    let mut sender = Sender::attach(&mut session, "posting", queue.as_str()).await.expect("a sender");
    let mut controller = Controller::attach(&mut session, "controller").await.expect("a coordinator");
    let kept = Transaction::declare(&mut controller, None).await.expect("declared");
    kept.post(&mut sender, "one").await.expect("posted");
    kept.post(&mut sender, "two").await.expect("posted");
    assert_empty(&mut session, &queue).await;
    kept.commit().await.expect("committed");
    let dropped = Transaction::declare(&mut controller, None).await.expect("declared");
    dropped.post(&mut sender, "three").await.expect("posted");
    dropped.rollback().await.expect("rolled back");
    assert_eq!(take(&mut session, queue.as_str(), 2).await, ["one", "two"]);
    assert_empty(&mut session, &queue).await;
    controller.close().await.expect("the coordinator closes");
    sender.close().await.expect("the sender closes");
    end(connection, session).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_transaction_takes_is_gone_when_it_is_committed() {
    let queue = plain();
    let (connection, mut session) = connect().await;
    send(&mut session, &queue, 1).await;
    let mut controller = Controller::attach(&mut session, "controller").await.expect("a coordinator");
    let mut from = receiver(&mut session, queue.as_str()).await;
    let delivery = next(&mut from).await;
    let kept = Transaction::declare(&mut controller, None).await.expect("declared");
    kept.accept(&mut from, &delivery).await.expect("accepted");
    kept.commit().await.expect("committed");
    from.close().await.expect("the receiver closes");
    assert_empty(&mut session, &queue).await;
    controller.close().await.expect("the coordinator closes");
    end(connection, session).await;
}
