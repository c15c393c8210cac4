//go:build older

package sdk

import "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

// codeNotFound: an older release has no code of its own for a number that nobody has.
const codeNotFound = azservicebus.Code("")

// emulator: an older release finds the bus where the cloud would be.
const emulator = ""
