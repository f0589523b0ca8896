//go:build !unix

package cli

import "os"

// ReopenSignals are none where files that are open cannot be renamed.
func ReopenSignals() []os.Signal { return nil }
