package sdk

import (
	"fmt"
	"os"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

func withKey(b *bench, keyName, key string) *azservicebus.Client {
	pair := fmt.Sprintf("SharedAccessKeyName=%s;SharedAccessKey=%s", keyName, key)
	return b.connect("Endpoint=sb://"+os.Getenv("POLYBUS_AMQP")+";"+pair+emulator, nil)
}

func guarded(b *bench, right admin.AccessRight) string {
	rule := admin.AuthorizationRule{
		KeyName: to("limited"), PrimaryKey: to("cHJpbWFyeQ=="), SecondaryKey: to("c2Vjb25k"),
		AccessRights: []admin.AccessRight{right},
	}
	return b.queue(admin.QueueProperties{AuthorizationRules: []admin.AuthorizationRule{rule}})
}

func TestAnEntityThatDoesNotExist(t *testing.T) {
	t.Parallel()
	b := newBench(t, false)
	b.refused(b.sender("missing").SendMessage(b.ctx, text(1), nil), "", "amqp:not-found")
	_, err := b.receiver("missing").ReceiveMessages(b.ctx, 1, nil)
	b.refused(err, "", "amqp:not-found")
}

func TestAWrongKey(t *testing.T) {
	t.Parallel()
	b := newBench(t, false)
	queue := b.queue()
	sender, err := withKey(b, "RootManageSharedAccessKey", "wrong").NewSender(queue, nil)
	b.ok(err)
	b.refused(sender.SendMessage(b.ctx, text(1), nil), azservicebus.CodeUnauthorizedAccess, "")
}

func TestAKeyWithTheRightToSendOnly(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue, limited := guarded(b, admin.AccessRightSend), withKey(b, "limited", "cHJpbWFyeQ==")
		sender, err := limited.NewSender(queue, nil)
		b.ok(err)
		b.ok(sender.SendMessage(b.ctx, text(1), nil))
		receiver, err := limited.NewReceiverForQueue(queue, nil)
		b.ok(err)
		_, err = receiver.ReceiveMessages(b.ctx, 1, nil)
		b.refused(err, azservicebus.CodeUnauthorizedAccess, "")
	})
}

func TestAKeyWithTheRightToListenOnly(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue, limited := guarded(b, admin.AccessRightListen), withKey(b, "limited", "c2Vjb25k")
		sender, err := limited.NewSender(queue, nil)
		b.ok(err)
		b.refused(sender.SendMessage(b.ctx, text(1), nil), azservicebus.CodeUnauthorizedAccess, "")
		b.send(queue, text("heard"))
		receiver, err := limited.NewReceiverForQueue(queue, nil)
		b.ok(err)
		equal(b, string(b.takeOne(receiver).Body), "heard")
	})
}

func TestADisabledQueue(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		queue := b.queue()
		set := func(status admin.EntityStatus) {
			found, err := b.admin.GetQueue(b.ctx, queue, nil)
			b.ok(err)
			found.Status = &status
			_, err = b.admin.UpdateQueue(b.ctx, queue, found.QueueProperties, nil)
			b.ok(err)
		}
		set(admin.EntityStatusSendDisabled)
		b.refused(b.sender(queue).SendMessage(b.ctx, text(1), nil), "", "entity-disabled")
		set(admin.EntityStatusActive)
		b.send(queue, text(1))
	})
}
