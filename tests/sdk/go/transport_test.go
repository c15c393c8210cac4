package sdk

import (
	"context"
	"net"
	"net/http"
	"os"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/coder/websocket"
)

func roundTrip(b *bench, client *azservicebus.Client) {
	queue := b.queue()
	sender, err := client.NewSender(queue, nil)
	b.ok(err)
	b.ok(sender.SendMessage(b.ctx, &azservicebus.Message{Body: make([]byte, 200_000)}, nil))
	receiver, err := client.NewReceiverForQueue(queue, nil)
	b.ok(err)
	found := b.takeOne(receiver)
	equal(b, len(found.Body), 200_000)
	b.ok(receiver.CompleteMessage(b.ctx, found, nil))
	equal(b, b.counts(queue).TotalMessageCount, 0)
}

func TestAMQPOverTLS(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		text := "Endpoint=sb://" + os.Getenv("POLYBUS_TLS") + ";" + keys
		config := trusting(b)
		config.ServerName = "localhost" // otherwise the SDK looks for a certificate of the host with its port
		roundTrip(b, b.connect(text, &azservicebus.ClientOptions{TLSConfig: config}))
	})
}

func TestAMQPOverWebSocket(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		transport := &http.Client{Transport: &http.Transport{TLSClientConfig: trusting(b)}}
		open := func(ctx context.Context, args azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			options := &websocket.DialOptions{Subprotocols: []string{"amqp"}, HTTPClient: transport}
			socket, _, err := websocket.Dial(ctx, args.Host, options)
			if err != nil {
				return nil, err
			}
			return websocket.NetConn(context.Background(), socket, websocket.MessageBinary), nil
		}
		text := "Endpoint=sb://" + os.Getenv("POLYBUS_HTTP") + ";" + keys
		roundTrip(b, b.connect(text, &azservicebus.ClientOptions{NewWebSocketConn: open}))
	})
}
