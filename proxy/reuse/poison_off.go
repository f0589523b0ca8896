//go:build !poison

package http1

const poisoned = false
