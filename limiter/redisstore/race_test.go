//go:build race

package redisstore_test

// raced says that the race detector makes all of this process several times slower.
const raced = true
