//go:build unix

package cli

import (
	"os"
	"syscall"
)

// ReopenSignals returns the signals after which the access log is reopened.
func ReopenSignals() []os.Signal { return []os.Signal{syscall.SIGUSR1} }
