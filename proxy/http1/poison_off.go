//go:build !http1poison

package http1

const poisoned = false
