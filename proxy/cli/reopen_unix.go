//go:build unix

package cli

import (
	"os"
	"syscall"
)

// ReopenSignals are the signals that have the access log opened anew.
func ReopenSignals() []os.Signal { return []os.Signal{syscall.SIGUSR1} }
