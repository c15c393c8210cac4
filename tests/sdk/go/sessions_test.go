package sdk

import (
	"context"
	"os"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

func fillSessions(b *bench, queue string, count int, ids ...string) string {
	for _, id := range ids {
		b.send(queue, numbered(count, func(body any) *azservicebus.Message { return inSession(body, id) })...)
	}
	return queue
}

func TestANamedSession(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := fillSessions(b, b.sessionQueue(), 10, "a", "b")
		session := b.session(queue, "b")
		equal(b, session.SessionID(), "b")
		equal(b, session.LockedUntil().After(time.Now()), true)
		found := b.take(session, 10)
		equal(b, bodies(found), numbers(10))
		for _, message := range found {
			b.ok(session.CompleteMessage(b.ctx, message, nil))
		}
		equal(b, b.counts(queue).ActiveMessageCount, 10)
	})
}

func TestTheNextSessions(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := fillSessions(b, b.sessionQueue(), 1, "a", "b", "c", "d")
		var found []string
		for range 4 {
			session, err := b.client.AcceptNextSessionForQueue(b.ctx, queue, nil)
			b.ok(err)
			equal(b, *b.takeOne(session).SessionID, session.SessionID())
			found = append(found, session.SessionID())
		}
		sort.Strings(found)
		equal(b, strings.Join(found, " "), "a b c d")
	})
}

func TestNoSessionInTime(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := b.sessionQueue()
		ctx, cancel := context.WithTimeout(b.ctx, 2*time.Second)
		defer cancel()
		_, err := b.client.AcceptNextSessionForQueue(ctx, queue, nil)
		b.refused(err, "", "")
		fillSessions(b, queue, 1, "late")
		session, err := b.client.AcceptNextSessionForQueue(b.ctx, queue, nil)
		b.ok(err)
		equal(b, session.SessionID(), "late")
	})
}

func TestAnEmptySessionID(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := fillSessions(b, b.sessionQueue(), 2, "")
		equal(b, bodies(b.take(b.session(queue, ""), 2)), numbers(2))
	})
}

func TestAHeldSessionCannotBeLocked(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := fillSessions(b, b.sessionQueue(), 1, "a")
		holder := b.session(queue, "a")
		_, err := b.client.AcceptSessionForQueue(b.ctx, queue, "a", nil)
		b.refused(err, "", "session-cannot-be-locked")
		b.ok(holder.Close(b.ctx))
		equal(b, bodies(b.take(b.session(queue, "a"), 1)), "0")
	})
}

func TestSessionState(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		session := b.session(fillSessions(b, b.sessionQueue(), 1, "a"), "a")
		state := func() string {
			found, err := session.GetSessionState(b.ctx, nil)
			b.ok(err)
			return string(found)
		}
		equal(b, state(), "")
		b.ok(session.SetSessionState(b.ctx, []byte("some state"), nil))
		equal(b, state(), "some state")
		b.ok(session.SetSessionState(b.ctx, nil, nil))
		equal(b, state(), "")
	})
}

func TestASessionsLockIsRenewed(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		session := b.session(fillSessions(b, b.sessionQueue(), 1, "a"), "a")
		before := session.LockedUntil()
		b.ok(session.RenewSessionLock(b.ctx, nil))
		equal(b, session.LockedUntil().Before(before), false)
	})
}

func TestASessionsLockThatRunsOut(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := b.queue(admin.QueueProperties{RequiresSession: to(true), LockDuration: to("PT5S")})
		fillSessions(b, queue, 2, "a")
		first := b.session(queue, "a")
		b.takeOne(first)
		other := b.connect(os.Getenv("POLYBUS_CONNECTION_STRING"), nil)
		second, err := other.AcceptNextSessionForQueue(b.ctx, queue, nil)
		b.ok(err)
		found := b.take(second, 2)
		equal(b, bodies(found), numbers(2))
		equal(b, found[0].DeliveryCount, 2)
		b.refused(first.RenewSessionLock(b.ctx, nil), azservicebus.CodeLockLost, "")
	})
}

func TestAbandonKeepsTheOrder(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		session := b.session(fillSessions(b, b.sessionQueue(), 3, "a"), "a")
		b.ok(session.AbandonMessage(b.ctx, b.takeOne(session), nil))
		equal(b, bodies(b.take(session, 3)), numbers(3))
	})
}

func TestDeferralAndDeadLetteringInASession(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := fillSessions(b, b.sessionQueue(), 3, "a", "b")
		session := b.session(queue, "a")
		equal(b, len(b.peekAll(session)), 6) // the SDK does not name its session when it peeks
		held := b.take(session, 3)
		b.ok(session.DeferMessage(b.ctx, held[0], nil))
		b.ok(session.DeadLetterMessage(b.ctx, held[1], nil))
		b.ok(session.CompleteMessage(b.ctx, held[2], nil))
		deferred, err := session.ReceiveDeferredMessages(b.ctx, []int64{*held[0].SequenceNumber}, nil)
		b.ok(err)
		b.ok(session.CompleteMessage(b.ctx, deferred[0], nil))
		equal(b, *b.takeOne(b.deadLetters(queue)).SessionID, "a")
	})
}

func TestAMessageWithoutASessionIsRefused(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		err := b.sender(b.sessionQueue()).SendMessage(b.ctx, text("lost"), nil)
		b.refused(err, "", "SessionId")
	})
}

func TestAReceiverWithoutASessionIsRefused(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		_, err := b.receiver(b.sessionQueue()).ReceiveMessages(b.ctx, 1, nil)
		b.refused(err, "", "requires sessions")
	})
}

func TestSessionsOfASubscription(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		topic := b.topic()
		options := &admin.CreateSubscriptionOptions{Properties: &admin.SubscriptionProperties{RequiresSession: to(true)}}
		_, err := b.admin.CreateSubscription(b.ctx, topic, "s", options)
		b.ok(err)
		b.send(topic, inSession("via topic", "x"))
		session, err := b.client.AcceptNextSessionForSubscription(b.ctx, topic, "s", nil)
		b.ok(err)
		equal(b, session.SessionID(), "x")
		b.ok(session.CompleteMessage(b.ctx, b.takeOne(session), nil))
	})
}
