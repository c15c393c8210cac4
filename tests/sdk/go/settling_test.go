package sdk

import (
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

func filled(b *bench, count int, properties ...admin.QueueProperties) string {
	queue := b.queue(properties...)
	b.send(queue, numbered(count, text)...)
	return queue
}

func TestPeekLockHolds(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := filled(b, 5)
		receiver := b.receiver(queue)
		held := b.take(receiver, 5)
		equal(b, sorted(held), numbers(5))
		b.nothing(b.receiver(queue))
		for _, message := range held {
			b.ok(receiver.CompleteMessage(b.ctx, message, nil))
		}
		equal(b, b.counts(queue).TotalMessageCount, 0)
	})
}

func TestReceiveAndDelete(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := filled(b, 10)
		equal(b, sorted(b.take(b.deleting(queue), 10)), numbers(10))
		equal(b, b.counts(queue).TotalMessageCount, 0)
	})
}

func TestALaterMessageComesAtOnce(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := b.queue()
		receiver := b.receiver(queue)
		b.nothing(receiver)
		b.send(queue, text("late"))
		equal(b, string(b.takeOne(receiver).Body), "late")
	})
}

func TestAbandonCountsAndChangesProperties(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := filled(b, 1)
		receiver := b.receiver(queue)
		options := &azservicebus.AbandonMessageOptions{PropertiesToModify: map[string]any{"added": "yes"}}
		b.ok(receiver.AbandonMessage(b.ctx, b.takeOne(receiver), options))
		again := b.takeOne(receiver)
		equal(b, again.DeliveryCount, 2)
		equal(b, again.ApplicationProperties["added"], any("yes"))
	})
}

func TestAbandonWithADelay(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := filled(b, 1)
		receiver := b.receiver(queue)
		wish := map[string]any{"polybus-retry-seconds": 2, "why": "busy"}
		options := &azservicebus.AbandonMessageOptions{PropertiesToModify: wish}
		b.ok(receiver.AbandonMessage(b.ctx, b.takeOne(receiver), options))
		abandoned := time.Now()
		b.nothing(receiver)
		equal(b, b.peekAll(b.receiver(queue))[0].State, azservicebus.MessageStateDeferred)
		again := b.takeOne(receiver)
		equal(b, time.Since(abandoned) > 1500*time.Millisecond, true)
		equal(b, again.DeliveryCount, 2)
		equal(b, again.ApplicationProperties["why"], any("busy"))
		equal(b, len(again.ApplicationProperties), 1)
		b.ok(receiver.CompleteMessage(b.ctx, again, nil))
		equal(b, b.counts(queue).TotalMessageCount, 0)
	})
}

func TestADelayBeyondTheTimeToLive(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := b.queue()
		message := text("short-lived")
		message.TimeToLive = to(time.Minute)
		b.send(queue, message)
		receiver := b.receiver(queue)
		held := b.takeOne(receiver)
		wish := map[string]any{"polybus-retry-seconds": 3600}
		options := &azservicebus.AbandonMessageOptions{PropertiesToModify: wish}
		err := receiver.AbandonMessage(b.ctx, held, options)
		if err == nil || !strings.Contains(err.Error(), "expires in") {
			b.Fatalf("it was to be refused: %v", err)
		}
		// The SDK settles nothing twice, but nothing has happened to the message, and its lock is held.
		b.nothing(b.receiver(queue))
		equal(b, b.peekAll(b.receiver(queue))[0].State, azservicebus.MessageStateActive)
	})
}

func TestDeferAndReceiveByNumber(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := filled(b, 1)
		receiver := b.receiver(queue)
		first := b.takeOne(receiver)
		options := &azservicebus.DeferMessageOptions{PropertiesToModify: map[string]any{"why": "later"}}
		b.ok(receiver.DeferMessage(b.ctx, first, options))
		b.nothing(receiver)
		equal(b, b.peekAll(b.receiver(queue))[0].State, azservicebus.MessageStateDeferred)
		deferred, err := receiver.ReceiveDeferredMessages(b.ctx, []int64{*first.SequenceNumber}, nil)
		b.ok(err)
		equal(b, deferred[0].ApplicationProperties["why"], any("later"))
		b.ok(receiver.RenewMessageLock(b.ctx, deferred[0], nil))
		b.ok(receiver.CompleteMessage(b.ctx, deferred[0], nil))
		equal(b, b.counts(queue).TotalMessageCount, 0)
	})
}

func TestDeferredMessagesAreSettledOverManagement(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := filled(b, 1)
		receiver := b.receiver(queue)
		first := b.takeOne(receiver)
		b.ok(receiver.DeferMessage(b.ctx, first, nil))
		again := func() *azservicebus.ReceivedMessage {
			found, err := receiver.ReceiveDeferredMessages(b.ctx, []int64{*first.SequenceNumber}, nil)
			b.ok(err)
			return found[0]
		}
		b.ok(receiver.AbandonMessage(b.ctx, again(), nil))
		b.ok(receiver.DeferMessage(b.ctx, again(), nil))
		options := &azservicebus.DeadLetterOptions{Reason: to("r"), ErrorDescription: to("d")}
		b.ok(receiver.DeadLetterMessage(b.ctx, again(), options))
		dead := b.takeOne(b.deadLetters(queue))
		equal(b, *dead.DeadLetterReason, "r")
		equal(b, *dead.DeadLetterErrorDescription, "d")
	})
}

func TestSeveralDeferredMessagesOfOneKey(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := b.queue()
		b.send(queue, numbered(4, func(body any) *azservicebus.Message { return keyed(body, "k") })...)
		receiver := b.receiver(queue)
		var wanted []int64
		for _, message := range b.take(receiver, 4) {
			b.ok(receiver.DeferMessage(b.ctx, message, nil))
			wanted = append(wanted, *message.SequenceNumber)
		}
		found, err := receiver.ReceiveDeferredMessages(b.ctx, wanted, nil)
		b.ok(err)
		equal(b, bodies(found), numbers(4))
	})
}

func TestANumberThatNobodyHasDeferred(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := filled(b, 1)
		receiver := b.receiver(queue)
		_, err := receiver.ReceiveDeferredMessages(b.ctx, []int64{*b.takeOne(receiver).SequenceNumber + 1}, nil)
		b.refused(err, codeNotFound, "")
	})
}

func TestDeadLetterMovesWithItsReason(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := filled(b, 2)
		receiver := b.receiver(queue)
		first := b.takeOne(receiver)
		options := &azservicebus.DeadLetterOptions{
			Reason: to("bad"), ErrorDescription: to("very bad"), PropertiesToModify: map[string]any{"more": "m"},
		}
		b.ok(receiver.DeadLetterMessage(b.ctx, first, options))
		from := b.deadLetters(queue)
		dead := b.takeOne(from)
		equal(b, *dead.DeadLetterReason, "bad")
		equal(b, *dead.DeadLetterErrorDescription, "very bad")
		equal(b, dead.ApplicationProperties["more"], any("m"))
		equal(b, *dead.DeadLetterSource, queue)
		equal(b, *dead.SequenceNumber, *first.SequenceNumber)
		b.ok(from.CompleteMessage(b.ctx, dead, nil))
		b.ok(receiver.DeadLetterMessage(b.ctx, b.takeOne(receiver), nil))
		equal(b, b.counts(queue).DeadLetterMessageCount, 1)
	})
}

func TestTooManyDeliveries(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := filled(b, 1, admin.QueueProperties{MaxDeliveryCount: to(int32(2))})
		receiver := b.receiver(queue)
		for range 2 {
			b.ok(receiver.AbandonMessage(b.ctx, b.takeOne(receiver), nil))
		}
		equal(b, *b.takeOne(b.deadLetters(queue)).DeadLetterReason, "MaxDeliveryCountExceeded")
	})
}

func TestALockIsRenewed(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := filled(b, 1)
		receiver := b.receiver(queue)
		held := b.takeOne(receiver)
		before := *held.LockedUntil
		b.ok(receiver.RenewMessageLock(b.ctx, held, nil))
		equal(b, held.LockedUntil.Before(before), false)
		b.ok(receiver.CompleteMessage(b.ctx, held, nil))
		b.refused(receiver.RenewMessageLock(b.ctx, held, nil), azservicebus.CodeLockLost, "")
	})
}

func TestALockThatRunsOut(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := filled(b, 1, admin.QueueProperties{LockDuration: to("PT5S")})
		first := b.receiver(queue)
		held := b.takeOne(first)
		again := b.takeOne(b.receiver(queue))
		equal(b, again.DeliveryCount, 2)
		b.refused(first.CompleteMessage(b.ctx, held, nil), azservicebus.CodeLockLost, "")
	})
}

func TestAnotherReceiverSettlesByToken(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := filled(b, 1)
		first := b.receiver(queue)
		held := b.takeOne(first)
		b.ok(first.Close(b.ctx))
		b.ok(b.receiver(queue).CompleteMessage(b.ctx, held, nil))
		equal(b, b.counts(queue).TotalMessageCount, 0)
	})
}

func TestSettlingTwiceChangesNothing(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := filled(b, 1)
		receiver := b.receiver(queue)
		held := b.takeOne(receiver)
		b.ok(receiver.CompleteMessage(b.ctx, held, nil))
		b.ok(receiver.AbandonMessage(b.ctx, held, nil)) // the SDK knows, and asks nobody
		equal(b, b.counts(queue).TotalMessageCount, 0)
	})
}

func TestPeekReachesEverything(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := filled(b, 45)
		peeked := b.peekAll(b.receiver(queue))
		equal(b, sorted(peeked), numbers(45))
		options := &azservicebus.PeekMessagesOptions{FromSequenceNumber: peeked[7].SequenceNumber}
		again, err := b.receiver(queue).PeekMessages(b.ctx, 1, options)
		b.ok(err)
		equal(b, again[0].MessageID, peeked[7].MessageID)
		equal(b, len(b.take(b.deleting(queue), 45)), 45)
	})
}

func TestAMessageWhoseTimeIsOver(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := b.queue(admin.QueueProperties{DeadLetteringOnMessageExpiration: to(true)})
		message := text("short")
		message.TimeToLive = to(100 * time.Millisecond)
		b.send(queue, message)
		equal(b, *b.takeOne(b.deadLetters(queue)).DeadLetterReason, "TTLExpiredException")
	})
}
