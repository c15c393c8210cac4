package sdk

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

func TestEveryPropertyArrives(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := b.queue()
		sent := keyed("hello", "key")
		sent.MessageID, sent.Subject, sent.ContentType = to("id"), to("subject"), to("text/plain")
		sent.CorrelationID, sent.To, sent.ReplyTo = to("correlation"), to("to"), to("back")
		sent.ReplyToSessionID, sent.TimeToLive = to("session"), to(time.Hour)
		sent.ApplicationProperties = map[string]any{"text": "t", "int": int64(7), "half": 0.5, "yes": true}
		b.send(queue, sent)
		found := b.takeOne(b.receiver(queue))
		equal(b, string(found.Body), "hello")
		equal(b, found.MessageID, "id")
		equal(b, *found.Subject, "subject")
		equal(b, *found.ContentType, "text/plain")
		equal(b, *found.CorrelationID, "correlation")
		equal(b, *found.To, "to")
		equal(b, *found.ReplyTo, "back")
		equal(b, *found.ReplyToSessionID, "session")
		equal(b, *found.PartitionKey, "key")
		equal(b, *found.TimeToLive, time.Hour)
		equal(b, found.DeliveryCount, 1) // the SDK counts the delivery itself
		equal(b, found.State, azservicebus.MessageStateActive)
		equal(b, found.LockedUntil.After(time.Now()), true)
		for property, value := range sent.ApplicationProperties {
			equal(b, found.ApplicationProperties[property], value)
		}
	})
}

func TestValuesAndSequencesArrive(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := b.queue()
		sender := b.sender(queue)
		value := azservicebus.AMQPAnnotatedMessageBody{Value: "a value"}
		sequence := azservicebus.AMQPAnnotatedMessageBody{Sequence: [][]any{{int64(1), "two"}}}
		for _, body := range []azservicebus.AMQPAnnotatedMessageBody{value, sequence} {
			b.ok(sender.SendAMQPAnnotatedMessage(b.ctx, &azservicebus.AMQPAnnotatedMessage{Body: body}, nil))
		}
		found := b.take(b.deleting(queue), 2)
		for _, message := range found {
			body := message.RawAMQPMessage.Body
			equal(b, body.Value == "a value" || (len(body.Sequence) == 1 && body.Sequence[0][1] == "two"), true)
		}
	})
}

func TestABatchSaysWhenItIsFull(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := b.queue()
		sender := b.sender(queue)
		batch, err := sender.NewMessageBatch(b.ctx, nil)
		b.ok(err)
		large := &azservicebus.Message{Body: make([]byte, 10_000)}
		for err == nil {
			err = batch.AddMessage(large, nil)
		}
		equal(b, errors.Is(err, azservicebus.ErrMessageTooLarge), true)
		equal(b, batch.NumMessages() > 20, true)
		b.ok(sender.SendMessageBatch(b.ctx, batch, nil))
		equal(b, b.counts(queue).ActiveMessageCount, batch.NumMessages())
	})
}

func TestABatchOfManyMessages(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := b.queue()
		b.ok(b.inABatch(queue, numbered(300, text)...))
		equal(b, sorted(b.take(b.deleting(queue), 300)), numbers(300))
		equal(b, b.counts(queue).TotalMessageCount, 0)
	})
}

func TestALargeMessageGoesInSeveralFrames(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := b.queue()
		body := bytes.Repeat([]byte("x"), 200_000)
		b.send(queue, &azservicebus.Message{Body: body})
		receiver := b.receiver(queue)
		found := b.takeOne(receiver)
		equal(b, bytes.Equal(found.Body, body), true)
		b.ok(receiver.CompleteMessage(b.ctx, found, nil))
	})
}

func TestAMessageOverTheLimitIsRefused(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := b.queue()
		sender := b.sender(queue)
		err := sender.SendMessage(b.ctx, &azservicebus.Message{Body: make([]byte, 300_000)}, nil)
		equal(b, errors.Is(err, azservicebus.ErrMessageTooLarge), true)
		b.ok(sender.SendMessage(b.ctx, text("small"), nil))
		equal(b, b.counts(queue).ActiveMessageCount, 1)
	})
}

func TestADuplicateIsAcceptedAndDropped(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := b.queue(admin.QueueProperties{RequiresDuplicateDetection: to(true)})
		for _, id := range []string{"a", "b", "a"} {
			message := text(id)
			message.MessageID = &id
			b.send(queue, message)
		}
		equal(b, b.counts(queue).ActiveMessageCount, 2)
	})
}

func TestAReceivedMessageCanBeSentAgain(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := b.queue()
		b.send(queue, text("again"))
		receiver := b.receiver(queue)
		first := b.takeOne(receiver)
		b.send(queue, first.Message())
		second := b.takeOne(receiver)
		equal(b, string(second.Body), "again")
		equal(b, *first.SequenceNumber != *second.SequenceNumber, true)
	})
}

func TestAKeyChoosesAPartitionAndNoKeySpreads(t *testing.T) {
	t.Parallel()
	b := newBench(t, true)
	queue := b.queue()
	b.send(queue, numbered(10, func(body any) *azservicebus.Message { return keyed(body, "one") })...)
	receiver := b.deleting(queue)
	found := b.take(receiver, 10)
	equal(b, bodies(found), numbers(10))
	equal(b, partitions(found), 1)
	b.send(queue, numbered(16, text)...)
	equal(b, partitions(b.take(receiver, 16)), 16)
}

func TestABatchWithDifferentKeys(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := b.queue()
		mixed := []*azservicebus.Message{keyed(1, "a"), keyed(2, "b")}
		err := b.inABatch(queue, mixed...)
		if !b.partitioned {
			b.ok(err)
			return
		}
		b.refused(err, "", "distinct SessionId or PartitionKey")
		equal(b, b.counts(queue).TotalMessageCount, 0)
	})
}

func TestScheduledMessagesWaitAndCome(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := b.queue()
		sender := b.sender(queue)
		due := time.Now().Add(3 * time.Second)
		scheduled, err := sender.ScheduleMessages(b.ctx, []*azservicebus.Message{text("soon")}, due, nil)
		b.ok(err)
		peeked := b.peekAll(b.receiver(queue))
		equal(b, peeked[0].State, azservicebus.MessageStateScheduled)
		equal(b, *peeked[0].SequenceNumber, scheduled[0])
		equal(b, b.counts(queue).ScheduledMessageCount, 1)
		found := b.takeOne(b.receiver(queue))
		equal(b, string(found.Body), "soon")
		equal(b, *found.SequenceNumber != scheduled[0], true)
	})
}

func TestScheduledMessagesAreCancelled(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := b.queue()
		sender := b.sender(queue)
		three := numbered(3, func(body any) *azservicebus.Message { return keyed(body, "k") })
		scheduled, err := sender.ScheduleMessages(b.ctx, three, time.Now().Add(time.Hour), nil)
		b.ok(err)
		equal(b, len(scheduled), 3)
		b.ok(sender.CancelScheduledMessages(b.ctx, scheduled[:2], nil))
		equal(b, b.counts(queue).ScheduledMessageCount, 1)
		b.refused(sender.CancelScheduledMessages(b.ctx, scheduled[:1], nil), codeNotFound, "")
	})
}
