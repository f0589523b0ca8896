//go:build !linux

package node

// releaseProgram does nothing on these systems, where it would not be known which pages differ from the file.
func releaseProgram() error { return nil }
