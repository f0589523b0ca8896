//go:build !race

package redisstore_test

const raced = false
