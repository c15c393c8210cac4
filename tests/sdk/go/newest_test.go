//go:build !older

// What only the newest release of the SDK has.
package sdk

import (
	"fmt"
	"sort"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

const codeNotFound = azservicebus.CodeNotFound

// emulator is what a connection string ends with where there is no TLS.
const emulator = ";UseDevelopmentEmulator=true"

func TestSessionsAreListed(t *testing.T) {
	onBothKinds(t, func(b *bench) {
		var ids []string
		for number := range 30 {
			ids = append(ids, fmt.Sprintf("s%02d", number))
		}
		queue := fillSessions(b, b.sessionQueue(), 1, ids...)
		var found []string
		for pager := b.client.NewListSessionsForQueuePager(queue, nil); pager.More(); {
			page, err := pager.NextPage(b.ctx)
			b.ok(err)
			found = append(found, page.Sessions...)
		}
		sort.Strings(found)
		equal(b, strings.Join(found, " "), strings.Join(ids, " "))
	})
}
