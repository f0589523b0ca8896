//go:build !unix

package cli

import "os"

// ReopenSignals returns none where open files cannot be renamed.
func ReopenSignals() []os.Signal { return nil }
