package sdk

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

func TestTheNamespaceDescribesItself(t *testing.T) {
	t.Parallel()
	b := newBench(t, false)
	found, err := b.admin.GetNamespaceProperties(b.ctx, nil)
	b.ok(err)
	equal(b, found.SKU, "Standard")
}

func TestAQueueWithEverythingSet(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		rule := admin.AuthorizationRule{
			KeyName: to("all"), PrimaryKey: to("cHJpbWFyeQ=="), SecondaryKey: to("c2Vjb25k"),
			AccessRights: []admin.AccessRight{admin.AccessRightManage, admin.AccessRightSend, admin.AccessRightListen},
		}
		target := b.queue()
		queue := b.queue(admin.QueueProperties{
			LockDuration: to("PT45S"), MaxSizeInMegabytes: to(int32(2048)), RequiresDuplicateDetection: to(true),
			RequiresSession: to(true), DefaultMessageTimeToLive: to("P2D"), MaxDeliveryCount: to(int32(7)),
			DeadLetteringOnMessageExpiration: to(true), DuplicateDetectionHistoryTimeWindow: to("PT5M"),
			AutoDeleteOnIdle: to("PT1H"), UserMetadata: to("some & <text>"), ForwardDeadLetteredMessagesTo: to(target),
			AuthorizationRules: []admin.AuthorizationRule{rule},
		})
		found, err := b.admin.GetQueue(b.ctx, queue, nil)
		b.ok(err)
		size := int32(2048)
		if b.partitioned {
			size *= 16
		}
		equal(b, *found.LockDuration, "PT45S")
		equal(b, *found.MaxSizeInMegabytes, size)
		equal(b, *found.RequiresDuplicateDetection && *found.RequiresSession, true)
		equal(b, *found.DefaultMessageTimeToLive, "P2D")
		equal(b, *found.MaxDeliveryCount, 7)
		equal(b, *found.UserMetadata, "some & <text>")
		equal(b, *found.EnablePartitioning, b.partitioned)
		equal(b, strings.HasSuffix(*found.ForwardDeadLetteredMessagesTo, "/"+target), true)
		equal(b, *found.AuthorizationRules[0].KeyName, "all")
	})
}

func TestAQueueIsUpdatedAndDeleted(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := b.queue()
		found, err := b.admin.GetQueue(b.ctx, queue, nil)
		b.ok(err)
		found.MaxDeliveryCount, found.UserMetadata = to(int32(3)), to("new")
		_, err = b.admin.UpdateQueue(b.ctx, queue, found.QueueProperties, nil)
		b.ok(err)
		found, err = b.admin.GetQueue(b.ctx, queue, nil)
		b.ok(err)
		equal(b, *found.MaxDeliveryCount, 3)
		_, err = b.admin.CreateQueue(b.ctx, queue, nil)
		b.refused(err, "", "409")
		_, err = b.admin.DeleteQueue(b.ctx, queue, nil)
		b.ok(err)
		gone, err := b.admin.GetQueue(b.ctx, queue, nil)
		b.ok(err)
		equal(b, gone == nil, true)
	})
}

func TestAQueueWithASlashInItsName(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := name("a/b/c")
		options := &admin.CreateQueueOptions{Properties: &admin.QueueProperties{EnablePartitioning: to(b.partitioned)}}
		_, err := b.admin.CreateQueue(b.ctx, queue, options)
		b.ok(err)
		b.send(queue, text("slashed"))
		equal(b, b.counts(queue).ActiveMessageCount, 1)
		_, err = b.admin.DeleteQueue(b.ctx, queue, nil)
		b.ok(err)
	})
}

func TestQueuesAreListedPageByPage(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		wanted := map[string]int{b.queue(): 0, b.queue(): 0, b.queue(): 0}
		for pager := b.admin.NewListQueuesPager(&admin.ListQueuesOptions{MaxPageSize: 1}); pager.More(); {
			page, err := pager.NextPage(b.ctx)
			b.ok(err)
			equal(b, len(page.Queues) <= 1, true)
			for _, queue := range page.Queues {
				if _, known := wanted[queue.QueueName]; known {
					wanted[queue.QueueName]++
				}
			}
		}
		for queue, times := range wanted {
			if times == 0 {
				b.Fatalf("%s is not listed", queue)
			}
		}
	})
}

func TestRuntimeProperties(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := filled(b, 3)
		later := []*azservicebus.Message{text("later")}
		_, err := b.sender(queue).ScheduleMessages(b.ctx, later, time.Now().Add(time.Hour), nil)
		b.ok(err)
		receiver := b.receiver(queue)
		b.ok(receiver.DeadLetterMessage(b.ctx, b.takeOne(receiver), nil))
		found := b.counts(queue)
		equal(b, found.ActiveMessageCount, 2)
		equal(b, found.DeadLetterMessageCount, 1)
		equal(b, found.ScheduledMessageCount, 1)
		equal(b, found.TotalMessageCount, 4)
		equal(b, found.SizeInBytes > 0, true)
	})
}

func TestTopicsAndSubscriptions(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		topic := b.topic("one", "two")
		found, err := b.admin.GetTopic(b.ctx, topic, nil)
		b.ok(err)
		equal(b, *found.EnablePartitioning, b.partitioned)
		found.UserMetadata = to("of a topic")
		_, err = b.admin.UpdateTopic(b.ctx, topic, found.TopicProperties, nil)
		b.ok(err)
		two, err := b.admin.GetSubscription(b.ctx, topic, "two", nil)
		b.ok(err)
		two.MaxDeliveryCount = to(int32(6))
		_, err = b.admin.UpdateSubscription(b.ctx, topic, "two", two.SubscriptionProperties, nil)
		b.ok(err)
		var names []string
		options := &admin.ListSubscriptionsOptions{MaxPageSize: 1}
		for pager := b.admin.NewListSubscriptionsPager(topic, options); pager.More(); {
			page, err := pager.NextPage(b.ctx)
			b.ok(err)
			for _, one := range page.Subscriptions {
				names = append(names, one.SubscriptionName)
			}
		}
		equal(b, strings.Join(names, " "), "one two")
		runtime, err := b.admin.GetTopicRuntimeProperties(b.ctx, topic, nil)
		b.ok(err)
		equal(b, runtime.SubscriptionCount, 2)
		_, err = b.admin.DeleteSubscription(b.ctx, topic, "two", nil)
		b.ok(err)
		gone, err := b.admin.GetSubscription(b.ctx, topic, "two", nil)
		b.ok(err)
		equal(b, gone == nil, true)
	})
}

func TestRulesChooseAndChange(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		topic := b.topic("s")
		_, err := b.admin.DeleteRule(b.ctx, topic, "s", "$Default", nil)
		b.ok(err)
		_, err = b.admin.CreateRule(b.ctx, topic, "s", &admin.CreateRuleOptions{
			Name: to("many"), Filter: &admin.SQLFilter{Expression: "amount > @least", Parameters: map[string]any{"@least": 10}},
			Action: &admin.SQLAction{Expression: "SET seen = 'yes'"},
		})
		b.ok(err)
		_, err = b.admin.CreateRule(b.ctx, topic, "s", &admin.CreateRuleOptions{
			Name:   to("exact"),
			Filter: &admin.CorrelationFilter{CorrelationID: to("c"), ApplicationProperties: map[string]any{"colour": "red"}},
		})
		b.ok(err)
		few, many, exact := text("few"), text("many"), text("exact")
		few.ApplicationProperties = map[string]any{"amount": 5}
		many.ApplicationProperties = map[string]any{"amount": 50}
		exact.CorrelationID, exact.ApplicationProperties = to("c"), map[string]any{"colour": "red"}
		b.send(topic, few, many, exact)
		for _, message := range b.take(b.subscriber(topic, "s"), 2) {
			if string(message.Body) == "many" {
				equal(b, message.ApplicationProperties["seen"], any("yes"))
				equal(b, message.ApplicationProperties["RuleName"], any("many"))
			} else {
				equal(b, string(message.Body), "exact")
			}
		}
	})
}

func TestRulesAreReadUpdatedAndListed(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		topic := b.topic("s")
		created, err := b.admin.CreateRule(b.ctx, topic, "s", &admin.CreateRuleOptions{
			Name: to("sql"), Filter: &admin.SQLFilter{Expression: "a = 1"}, Action: &admin.SQLAction{Expression: "SET b = 2"},
		})
		b.ok(err)
		properties := created.RuleProperties
		properties.Filter = &admin.SQLFilter{Expression: "a = 2"}
		_, err = b.admin.UpdateRule(b.ctx, topic, "s", properties)
		b.ok(err)
		found, err := b.admin.GetRule(b.ctx, topic, "s", "sql", nil)
		b.ok(err)
		equal(b, found.Filter.(*admin.SQLFilter).Expression, "a = 2")
		for _, filter := range []admin.RuleFilter{&admin.FalseFilter{}, &admin.TrueFilter{}} {
			_, err = b.admin.CreateRule(b.ctx, topic, "s", &admin.CreateRuleOptions{Name: to(name("rule")), Filter: filter})
			b.ok(err)
		}
		listed := 0
		for pager := b.admin.NewListRulesPager(topic, "s", &admin.ListRulesOptions{MaxPageSize: 1}); pager.More(); {
			page, err := pager.NextPage(b.ctx)
			b.ok(err)
			listed += len(page.Rules)
		}
		equal(b, listed, 4)
	})
}

func TestEverySubscriptionGetsItsCopy(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		topic := b.topic("one", "two")
		b.ok(b.inABatch(topic, numbered(5, text)...))
		for _, subscription := range []string{"one", "two"} {
			equal(b, bodies(b.take(b.subscriber(topic, subscription), 5)), numbers(5))
		}
	})
}

func TestAQueueForwardsToAnother(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		target := b.queue()
		source := b.queue(admin.QueueProperties{ForwardTo: &target})
		b.send(source, keyed("on", "k"))
		equal(b, string(b.takeOne(b.receiver(target)).Body), "on")
		b.until(func() bool { return b.counts(source).TotalMessageCount == 0 })
	})
}

func TestAWrongKeyOverHTTP(t *testing.T) {
	t.Parallel()
	b := newBench(t, false)
	wrong := strings.Replace(keys, "SAS_KEY_VALUE", "wrong", 1)
	text := "Endpoint=sb://" + os.Getenv("POLYBUS_HTTP") + ";" + wrong
	_, err := b.administrator(text).GetNamespaceProperties(b.ctx, nil)
	b.refused(err, "", "401")
}
