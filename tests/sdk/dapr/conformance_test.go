// Dapr's own conformance suite over its unmodified Service Bus components: publish and subscribe on queues and topics,
// and the binding. What it makes itself is plain; the partitioned entities are made before it comes.
package dapr

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/dapr/components-contrib/bindings"
	"github.com/dapr/components-contrib/bindings/azure/servicebusqueues"
	"github.com/dapr/components-contrib/pubsub"
	"github.com/dapr/components-contrib/pubsub/azure/servicebus/queues"
	"github.com/dapr/components-contrib/pubsub/azure/servicebus/topics"
	bindingsuite "github.com/dapr/components-contrib/tests/conformance/bindings"
	pubsubsuite "github.com/dapr/components-contrib/tests/conformance/pubsub"
	"github.com/dapr/kit/logger"
)

var (
	connectionString = os.Getenv("POLYBUS_DAPR_CONNECTION_STRING")
	quiet            = func() logger.Logger {
		made := logger.NewLogger("dapr")
		made.SetOutputLevel(logger.FatalLevel)
		return made
	}()
)

// kind says how the entities come to be, and how they are called.
type kind struct {
	word        string
	partitioned bool
}

var kinds = []kind{{"plain", false}, {"partitioned", true}}

func (k kind) names() []string {
	return []string{k.word + "-one", k.word + "-bulk", k.word + "-multi-1", k.word + "-multi-2"}
}

// make creates what Dapr then finds; the plain ones it makes by itself.
func (k kind) make(t *testing.T, create func(*admin.Client, string) error) {
	t.Helper()
	if !k.partitioned {
		return
	}
	client, err := admin.NewClientFromConnectionString(connectionString, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range k.names() {
		if err := create(client, name); err != nil {
			t.Fatal(err)
		}
	}
}

func (k kind) publishes(t *testing.T, component pubsub.PubSub, properties map[string]string) {
	names := k.names()
	config, err := pubsubsuite.NewTestConfig("azure.servicebus", []string{"bulkpublish", "bulksubscribe"}, map[string]any{
		"pubsubName":             "azure-servicebus",
		"testTopicName":          names[0],
		"testTopicForBulkSub":    names[1],
		"testMultiTopic1Name":    names[2],
		"testMultiTopic2Name":    names[3],
		"checkInOrderProcessing": false,
		"waitDurationToPublish":  time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	properties["connectionString"] = connectionString
	pubsubsuite.ConformanceTests(t, properties, component, config)
}

var partitioned = true

func TestQueues(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.word, func(t *testing.T) {
			kind.word += "-queue"
			kind.make(t, func(client *admin.Client, name string) error {
				options := &admin.CreateQueueOptions{Properties: &admin.QueueProperties{EnablePartitioning: &partitioned}}
				_, err := client.CreateQueue(context.Background(), name, options)
				return err
			})
			kind.publishes(t, queues.NewAzureServiceBusQueues(quiet), map[string]string{})
		})
	}
}

func TestTopics(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.word, func(t *testing.T) {
			kind.word += "-topic"
			kind.make(t, func(client *admin.Client, name string) error {
				options := &admin.CreateTopicOptions{Properties: &admin.TopicProperties{EnablePartitioning: &partitioned}}
				_, err := client.CreateTopic(context.Background(), name, options)
				return err
			})
			properties := map[string]string{"consumerID": "consumer"}
			kind.publishes(t, topics.NewAzureServiceBusTopics(quiet), properties)
		})
	}
}

func TestBinding(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.word, func(t *testing.T) {
			kind.word += "-binding"
			kind.make(t, func(client *admin.Client, name string) error {
				options := &admin.CreateQueueOptions{Properties: &admin.QueueProperties{EnablePartitioning: &partitioned}}
				_, err := client.CreateQueue(context.Background(), name, options)
				return err
			})
			config, err := bindingsuite.NewTestConfig("azure.servicebusqueues", []string{"create", "operations", "read"}, nil)
			if err != nil {
				t.Fatal(err)
			}
			properties := map[string]string{
				"connectionString": connectionString,
				"queueName":        kind.names()[0],
				"ttlInSeconds":     "60",
			}
			made := servicebusqueues.NewAzureServiceBusQueues(quiet)
			output, both := made.(bindings.OutputBinding)
			if !both {
				t.Fatal("the component is no output binding")
			}
			bindingsuite.ConformanceTests(t, properties, made, output, config)
		})
	}
}
