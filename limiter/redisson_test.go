package limiter_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/limiter"
)

func TestCheckRedissonName(t *testing.T) {
	for name, good := range map[string]bool{
		"rl": true, "redisson:demo:limit": true, "a{b}c": true, "{x}": true, "a b": true, "values": true, "a:value:b": true,
		"": false, "a{b": false, "a}b": false, "a}b{": false, "{}x": false, "{a}{b}": false, "{{a}}": false, "{a}}": false,
		"codes{a}:555:permits": false, "{a}:value": false, "a:permits": false, "{a}:value:d2a6b9c6-52a5-4bb0-9d6c-2f4f4f7a1e11": false,
		strings.Repeat("x", 512): true, strings.Repeat("x", 513): false,
	} {
		if err := limiter.CheckRedissonName(name); (err == nil) != good || err != nil && !errors.Is(err, limiter.ErrInvalidLimit) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestCheckRedissonKey(t *testing.T) {
	for text, good := range map[string]bool{
		"+8613800138000": true, "192.0.2.1": true, "2001:db8::/64": true, "é": true, "": true,
		"a b": false, "{a": false, "a}": false, "a\n": false, "a\x00": false, "a\u200b": false, "\xff": false, "\u00a0": false,
	} {
		if err := limiter.CheckRedissonKey(text); (err == nil) != good || err != nil && !errors.Is(err, limiter.ErrInvalidLimit) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestRedissonFormOf(t *testing.T) {
	for version, want := range map[string]limiter.RedissonFormat{
		"1.0": limiter.RedissonWindow, "3.11.6": limiter.RedissonWindow, "3.13.2": limiter.RedissonWindow,
		"3.13.3": limiter.RedissonFloat, "3.13": limiter.RedissonFloat, "3.16.3": limiter.RedissonFloat,
		"3.16.4": limiter.RedissonLong, "3.16": limiter.RedissonLong, "3.17": limiter.RedissonByte, "4.7.0": limiter.RedissonByte,
	} {
		if got, err := limiter.RedissonFormatOf(version); got != want || err != nil {
			t.Errorf("%s: %v, %v; want %v", version, got, err, want)
		}
	}
	for _, bad := range []string{"", "3", "3.", "x.y", "3.1.2.3", "-3.1", "0.1", "3.16.3-SNAPSHOT"} {
		if form, err := limiter.RedissonFormatOf(bad); !errors.Is(err, limiter.ErrInvalidLimit) {
			t.Errorf("%q: %v, %v", bad, form, err)
		}
	}
}
