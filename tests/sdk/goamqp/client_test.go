// go-amqp, which knows nothing of Service Bus: sending, receiving, selectors and nodes of one's own.
package goamqp

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
)

func connect(t *testing.T) (context.Context, *amqp.Session) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	login := amqp.SASLTypePlain(os.Getenv("POLYBUS_KEY_NAME"), os.Getenv("POLYBUS_KEY"))
	conn, err := amqp.Dial(ctx, "amqp://"+os.Getenv("POLYBUS_AMQP"), &amqp.ConnOptions{SASLType: login})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	return ctx, session
}

func name(t *testing.T) string {
	return fmt.Sprintf("go-amqp-%s-%d", t.Name(), time.Now().UnixNano())
}

func send(t *testing.T, ctx context.Context, session *amqp.Session, target string, count int) {
	t.Helper()
	sender, err := session.NewSender(ctx, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	for number := range count {
		message := amqp.NewMessage([]byte(fmt.Sprint(number)))
		message.ApplicationProperties = map[string]any{"n": int64(number)}
		if err := sender.Send(ctx, message, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := sender.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, ctx context.Context, session *amqp.Session, source string, count int,
	options *amqp.ReceiverOptions) []string {
	t.Helper()
	receiver, err := session.NewReceiver(ctx, source, options)
	if err != nil {
		t.Fatal(err)
	}
	bodies := []string{}
	for range count {
		message, err := receiver.Receive(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := receiver.AcceptMessage(ctx, message); err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, string(message.GetData()))
	}
	if err := receiver.Close(ctx); err != nil {
		t.Fatal(err)
	}
	return bodies
}

func same(t *testing.T, got []string, wanted ...string) {
	t.Helper()
	if !reflect.DeepEqual(got, wanted) {
		t.Fatalf("got %v, wanted %v", got, wanted)
	}
}

func TestSendingAndReceiving(t *testing.T) {
	ctx, session := connect(t)
	queue := name(t)
	send(t, ctx, session, queue, 3)
	same(t, receive(t, ctx, session, queue, 3, nil), "0", "1", "2")
}

func TestReceivingWhatASelectorWants(t *testing.T) {
	ctx, session := connect(t)
	queue := name(t)
	send(t, ctx, session, queue, 4)
	selector := &amqp.ReceiverOptions{Filters: []amqp.LinkFilter{amqp.NewSelectorFilter("n >= 2")}}
	same(t, receive(t, ctx, session, queue, 2, selector), "2", "3")
	same(t, receive(t, ctx, session, queue, 2, nil), "0", "1")
}

func TestANodeOfOnesOwn(t *testing.T) {
	ctx, session := connect(t)
	receiver, err := session.NewReceiver(ctx, "", &amqp.ReceiverOptions{DynamicAddress: true})
	if err != nil {
		t.Fatal(err)
	}
	send(t, ctx, session, receiver.Address(), 1)
	message, err := receiver.Receive(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	same(t, []string{string(message.GetData())}, "0")
}
