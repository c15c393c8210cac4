// Package sdk shows behaviours of the bus with the official Go SDK, on plain and on partitioned entities.
package sdk

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

const keys = "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE"

// soon is how long a test waits for what is there, or is about to be; aMoment for what must not be there.
const (
	soon    = 20 * time.Second
	aMoment = 400 * time.Millisecond
)

// Refusals are final for these tests: what is retried would only be refused again, later.
var impatient = azservicebus.RetryOptions{MaxRetries: -1}

var names atomic.Int64

// bench is what a behaviour works with: a client, and entities of one kind that are gone after it.
type bench struct {
	*testing.T
	ctx         context.Context
	partitioned bool
	client      *azservicebus.Client
	admin       *admin.Client
}

// onBothKinds shows a behaviour on a plain and on a partitioned entity.
func onBothKinds(t *testing.T, show func(*bench)) {
	t.Parallel()
	t.Run("plain", func(t *testing.T) { show(newBench(t, false)) })
	t.Run("partitioned", func(t *testing.T) { show(newBench(t, true)) })
}

func newBench(t *testing.T, partitioned bool) *bench {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	b := &bench{T: t, ctx: ctx, partitioned: partitioned}
	b.client = b.connect(os.Getenv("POLYBUS_CONNECTION_STRING"), nil)
	b.admin = b.administrator(os.Getenv("POLYBUS_ADMIN_CONNECTION_STRING"))
	return b
}

func (b *bench) connect(text string, options *azservicebus.ClientOptions) *azservicebus.Client {
	if options == nil {
		options = &azservicebus.ClientOptions{}
	}
	options.RetryOptions = impatient
	client, err := azservicebus.NewClientFromConnectionString(text, options)
	b.ok(err)
	b.Cleanup(func() { client.Close(context.Background()) })
	return client
}

// trusting is a TLS configuration that knows the bus's development authority.
func trusting(b *bench) *tls.Config {
	pem, err := os.ReadFile(os.Getenv("POLYBUS_CA"))
	b.ok(err)
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		b.Fatal("the authority's certificate cannot be read")
	}
	return &tls.Config{RootCAs: pool}
}

func (b *bench) administrator(text string) *admin.Client {
	transport := &http.Client{Transport: &http.Transport{TLSClientConfig: trusting(b)}}
	b.Cleanup(transport.CloseIdleConnections)
	options := &admin.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: transport}}
	client, err := admin.NewClientFromConnectionString(text, options)
	b.ok(err)
	return client
}

// Entities

func name(word string) string {
	return fmt.Sprintf("%s-%d", word, names.Add(1))
}

func (b *bench) queue(properties ...admin.QueueProperties) string {
	made := admin.QueueProperties{}
	if len(properties) > 0 {
		made = properties[0]
	}
	made.EnablePartitioning = to(b.partitioned)
	queue := name("queue")
	_, err := b.admin.CreateQueue(b.ctx, queue, &admin.CreateQueueOptions{Properties: &made})
	b.ok(err)
	b.Cleanup(func() { b.admin.DeleteQueue(context.Background(), queue, nil) })
	return queue
}

func (b *bench) sessionQueue() string {
	return b.queue(admin.QueueProperties{RequiresSession: to(true)})
}

func (b *bench) topic(subscriptions ...string) string {
	topic := name("topic")
	options := &admin.CreateTopicOptions{Properties: &admin.TopicProperties{EnablePartitioning: to(b.partitioned)}}
	_, err := b.admin.CreateTopic(b.ctx, topic, options)
	b.ok(err)
	b.Cleanup(func() { b.admin.DeleteTopic(context.Background(), topic, nil) })
	for _, subscription := range subscriptions {
		_, err := b.admin.CreateSubscription(b.ctx, topic, subscription, nil)
		b.ok(err)
	}
	return topic
}

func (b *bench) counts(queue string) admin.QueueRuntimeProperties {
	found, err := b.admin.GetQueueRuntimeProperties(b.ctx, queue, nil)
	b.ok(err)
	return found.QueueRuntimeProperties
}

// Clients

func (b *bench) sender(entity string) *azservicebus.Sender {
	sender, err := b.client.NewSender(entity, nil)
	b.ok(err)
	return sender
}

func (b *bench) receiver(queue string) *azservicebus.Receiver {
	return b.receiverWith(queue, nil)
}

func (b *bench) deleting(queue string) *azservicebus.Receiver {
	return b.receiverWith(queue, &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
}

func (b *bench) deadLetters(queue string) *azservicebus.Receiver {
	return b.receiverWith(queue, &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
}

func (b *bench) receiverWith(queue string, options *azservicebus.ReceiverOptions) *azservicebus.Receiver {
	receiver, err := b.client.NewReceiverForQueue(queue, options)
	b.ok(err)
	return receiver
}

func (b *bench) subscriber(topic, subscription string) *azservicebus.Receiver {
	receiver, err := b.client.NewReceiverForSubscription(topic, subscription, nil)
	b.ok(err)
	return receiver
}

func (b *bench) session(queue, id string) *azservicebus.SessionReceiver {
	session, err := b.client.AcceptSessionForQueue(b.ctx, queue, id, nil)
	b.ok(err)
	return session
}

// Messages

func text(body any) *azservicebus.Message {
	return &azservicebus.Message{Body: []byte(fmt.Sprint(body))}
}

func keyed(body any, key string) *azservicebus.Message {
	message := text(body)
	message.PartitionKey = &key
	return message
}

func inSession(body any, id string) *azservicebus.Message {
	message := text(body)
	message.SessionID = &id
	return message
}

func (b *bench) send(entity string, messages ...*azservicebus.Message) {
	sender := b.sender(entity)
	for _, message := range messages {
		b.ok(sender.SendMessage(b.ctx, message, nil))
	}
	b.ok(sender.Close(b.ctx))
}

// inABatch sends messages as one; what becomes of it is the caller's.
func (b *bench) inABatch(entity string, messages ...*azservicebus.Message) error {
	sender := b.sender(entity)
	batch, err := sender.NewMessageBatch(b.ctx, nil)
	b.ok(err)
	for _, message := range messages {
		b.ok(batch.AddMessage(message, nil))
	}
	return sender.SendMessageBatch(b.ctx, batch, nil)
}

func numbered(count int, make func(any) *azservicebus.Message) []*azservicebus.Message {
	var made []*azservicebus.Message
	for body := range count {
		made = append(made, make(body))
	}
	return made
}

type receives interface {
	ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
}

// take gives the next messages of a receiver, however many calls that takes.
func (b *bench) take(receiver receives, count int) []*azservicebus.ReceivedMessage {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, soon)
	defer cancel()
	var found []*azservicebus.ReceivedMessage
	for len(found) < count {
		more, err := receiver.ReceiveMessages(ctx, count-len(found), nil)
		if err != nil {
			b.Fatalf("%d of %d messages came: %v", len(found), count, err)
		}
		found = append(found, more...)
	}
	return found
}

func (b *bench) takeOne(receiver receives) *azservicebus.ReceivedMessage {
	b.Helper()
	return b.take(receiver, 1)[0]
}

// nothing checks that nothing can be received.
func (b *bench) nothing(receiver receives) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, aMoment)
	defer cancel()
	found, err := receiver.ReceiveMessages(ctx, 1, nil)
	if len(found) > 0 || !errors.Is(err, context.DeadlineExceeded) {
		b.Fatalf("nothing was to be received: %d messages, %v", len(found), err)
	}
}

type peeks interface {
	PeekMessages(context.Context, int, *azservicebus.PeekMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
}

func (b *bench) peekAll(receiver peeks) []*azservicebus.ReceivedMessage {
	var found []*azservicebus.ReceivedMessage
	for {
		more, err := receiver.PeekMessages(b.ctx, 20, nil)
		b.ok(err)
		if len(more) == 0 {
			return found
		}
		found = append(found, more...)
	}
}

func bodies(messages []*azservicebus.ReceivedMessage) string {
	var found []string
	for _, message := range messages {
		found = append(found, string(message.Body))
	}
	return strings.Join(found, " ")
}

func sorted(messages []*azservicebus.ReceivedMessage) string {
	found := strings.Fields(bodies(messages))
	sort.Slice(found, func(i, j int) bool {
		left, _ := strconv.Atoi(found[i])
		right, _ := strconv.Atoi(found[j])
		return left < right
	})
	return strings.Join(found, " ")
}

func numbers(count int) string {
	var found []string
	for number := range count {
		found = append(found, strconv.Itoa(number))
	}
	return strings.Join(found, " ")
}

func partitions(messages []*azservicebus.ReceivedMessage) int {
	found := map[int64]bool{}
	for _, message := range messages {
		found[*message.SequenceNumber>>48] = true
	}
	return len(found)
}

// Expectations

func to[T any](value T) *T { return &value }

func (b *bench) ok(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func equal[T comparable](b *bench, found, wanted T) {
	b.Helper()
	if found != wanted {
		b.Fatalf("found %v, wanted %v", found, wanted)
	}
}

// refused checks the SDK's own code of a refusal; an empty code stands for any error.
func (b *bench) refused(err error, code azservicebus.Code, words string) {
	b.Helper()
	if err == nil {
		b.Fatal("nothing was refused")
	}
	var known *azservicebus.Error
	if code != "" && (!errors.As(err, &known) || known.Code != code) {
		b.Fatalf("wanted the code %q: %v", code, err)
	}
	if !strings.Contains(err.Error(), words) {
		b.Fatalf("wanted the words %q: %v", words, err)
	}
}

// until asks again until it is so; the bench's own time is the limit.
func (b *bench) until(ask func() bool) {
	b.Helper()
	for !ask() {
		select {
		case <-b.ctx.Done():
			b.Fatal("it never was so")
		case <-time.After(20 * time.Millisecond):
		}
	}
}
