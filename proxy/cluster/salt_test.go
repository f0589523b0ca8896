package cluster_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/test/redistest"
)

func TestSalt_IsThatOfTheFirst(t *testing.T) {
	s := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer rdb.Close()
	salt := func(prefix string, own byte) [32]byte {
		t.Helper()
		got, err := cluster.Salt(t.Context(), rdb, prefix, [32]byte{own})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if first, second := salt("weir", 1), salt("weir", 2); first != [32]byte{1} || second != first {
		t.Errorf("salts %v and %v; want that of the first twice", first, second)
	}
	if got := salt("other", 3); got != [32]byte{3} {
		t.Errorf("salt %v under another prefix; want its own", got)
	}
	if err := rdb.Expire(t.Context(), "weir:{cluster}:salt", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	salt("weir", 4)
	if left := rdb.TTL(t.Context(), "weir:{cluster}:salt").Val(); left < 29*24*time.Hour {
		t.Errorf("the salt is kept for %v; want a month from when it was asked for last", left)
	}
	if err := rdb.Set(t.Context(), "weir:{cluster}:salt", "short", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if got, err := cluster.Salt(t.Context(), rdb, "weir", [32]byte{5}); err == nil || got != [32]byte{5} {
		t.Errorf("%v, %v of a salt that is none; want the own one and an error", got, err)
	}
}
