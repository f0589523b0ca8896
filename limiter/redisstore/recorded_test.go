package redisstore_test

import (
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/limitertest"
	"github.com/weir-proxy/weir/limiter/redisstore"
)

var recordAs = flag.String("record", "", "write testdata/recorded/`VERSION`, the state of this release")

// A recording is what a release left in Redis, and what it decided afterwards.
type recording struct {
	Keys   map[string]recordedKey
	Permit string // of the last request before; in hex
	At     int64  // its time, in ms
	Then   []string
}

// A recordedKey is a key of Redis. Its values are in hex, since they are binary.
type recordedKey struct {
	Type   string
	Values []string // of a string one, of a sorted set members and scores, of a hash names and values
	TTL    int64    // in ms
}

// recordedStories are requests before and after an upgrade, by what they tell of.
func recordedStories() map[string]limiter.Claim {
	stories := map[string]limiter.Claim{}
	for a := limiter.TokenBucket; a < limiter.NumAlgorithms; a++ {
		limit := limitertest.LimitOf(a, "sms.phone:1m", limiter.Rate{Count: 3, Window: time.Minute})
		if a == limiter.Cooldown {
			limit.Rate.Window, limit.Steps = time.Hour, []time.Duration{5 * time.Second, 15 * time.Second, 30 * time.Minute}
		}
		stories[a.String()] = limiter.Claim{Limit: limit, Key: limiter.KeyOf("alice"), Cost: 1, Value: limiter.KeyOf("first")}
	}
	bucket := stories["token_bucket"]
	many := &limiter.Limit{Name: "sms.many:1m", Rate: limiter.Rate{Count: 400, Window: time.Minute}}
	stories["merged"] = limiter.Claim{Limit: many, Key: bucket.Key, Cost: 1}
	log := *many
	log.Algorithm = limiter.SlidingLog
	stories["merged_log"] = limiter.Claim{Limit: &log, Key: bucket.Key, Cost: 1}
	stories["banned"] = bucket
	bucket.RedissonName = "sms:alice"
	stories["redisson"] = bucket
	return stories
}

// recordedBefore is what happens before the upgrade. It returns the permit of the last
// request.
func (s *testStore) recordedBefore(name string, c limiter.Claim) limiter.Permit {
	s.t.Helper()
	requests := 2
	if c.Limit.Rate.Count > 100 {
		requests = 200 // more than a log holds
	}
	var permit limiter.Permit
	for range requests {
		s.advance(10 * time.Second / time.Duration(requests))
		permit = s.allowed([]limiter.Claim{c}, 1).Permit
	}
	if name == "banned" {
		s.check(s.store.Ban(s.t.Context(), []limiter.Claim{c}, 25*time.Second))
	}
	return permit
}

// recordedAfter is what happens after it: requests over two minutes, of which one gives back the
// permit from before.
func (s *testStore) recordedAfter(c limiter.Claim, permit limiter.Permit) (then []string) {
	s.t.Helper()
	for step := range 12 {
		s.advance(7 * time.Second)
		if step == 2 {
			s.check(s.store.Refund(s.t.Context(), []limiter.Claim{c}, permit))
		}
		c.Value = limiter.KeyOf([]string{"second", "first", "third"}[step%3])
		c.Cost = 1
		if c.Limit.Rate.Count > 100 {
			c.Cost = 60
		}
		d := s.take([]limiter.Claim{c})
		o := d.Outcomes[0]
		then = append(then, fmt.Sprintf("allowed %v, remaining %d, wait %v, banned %v", d.Allowed, o.Remaining, d.Wait, o.Banned))
	}
	return then
}

// What a release left in Redis is read by this one: it decides as if nothing had happened.
// Record the state of each release, before it is made, with -record VERSION.
func TestRecorded_StateOfReleasesIsHonoured(t *testing.T) {
	t.Parallel()
	if *recordAs != "" {
		for name, c := range recordedStories() {
			record(t, filepath.Join("testdata", "recorded", *recordAs), name, c)
		}
	}
	releases, err := filepath.Glob("testdata/recorded/v*")
	if err != nil || len(releases) == 0 {
		t.Fatalf("no release is recorded: %v", err)
	}
	s := newClockedTestStore(t)
	for _, release := range releases {
		for name, c := range recordedStories() {
			var r recording
			text, err := os.ReadFile(filepath.Join(release, name+".json"))
			if err == nil {
				err = json.Unmarshal(text, &r)
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			s.do("flushall")
			s.restoreKeys(r)
			id, err := hex.DecodeString(r.Permit)
			if err != nil || len(id) != 16 {
				t.Fatalf("%s: the permit is %q", name, r.Permit)
			}
			got := s.recordedAfter(c, limiter.Permit{ID: [16]byte(id), At: time.UnixMilli(r.At)})
			if !slices.Equal(got, r.Then) {
				t.Errorf("%s of %s: decided\n%s\nthe release itself\n%s", name, release, strings.Join(got, "\n"), strings.Join(r.Then, "\n"))
			}
		}
	}
}

// A layout that this release does not read makes the test above fail: without the state
// the decisions are others.
func TestRecorded_LostStateIsNoticed(t *testing.T) {
	t.Parallel()
	s := newClockedTestStore(t)
	for name, c := range recordedStories() {
		s.do("flushall")
		s.do("set", redisstore.TestClock, int64(1_800_000_000_000))
		permit := s.recordedBefore(name, c)
		want := s.recordKeys(permit)
		want.Then = s.recordedAfter(c, permit)
		s.do("flushall")
		s.restoreKeys(recording{At: want.At})
		if got := s.recordedAfter(c, permit); slices.Equal(got, want.Then) {
			t.Errorf("%s: the same is decided without what was recorded: %s", name, got)
		}
	}
}

func record(t *testing.T, dir, name string, c limiter.Claim) {
	t.Helper()
	s := newClockedTestStore(t)
	permit := s.recordedBefore(name, c)
	r := s.recordKeys(permit)
	r.Then = s.recordedAfter(c, permit)
	text, err := json.MarshalIndent(r, "", " ")
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".json"), append(text, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// recordKeys reads all keys. It uses no DUMP, whose form is that of a version of Redis.
func (s *testStore) recordKeys(permit limiter.Permit) recording {
	s.t.Helper()
	r := recording{Keys: map[string]recordedKey{}, Permit: hex.EncodeToString(permit.ID[:]), At: permit.At.UnixMilli()}
	ctx := s.t.Context()
	for _, key := range s.client.Keys(ctx, "*").Val() {
		if key == redisstore.TestClock {
			continue
		}
		k := recordedKey{Type: s.client.Type(ctx, key).Val(), TTL: s.client.PTTL(ctx, key).Val().Milliseconds()}
		var values []string
		switch k.Type {
		case "string":
			values = []string{s.client.Get(ctx, key).Val()}
		case "zset":
			for _, z := range s.client.ZRangeWithScores(ctx, key, 0, -1).Val() {
				values = append(values, z.Member.(string), fmt.Sprintf("%.0f", z.Score))
			}
		case "hash":
			for field, value := range s.client.HGetAll(ctx, key).Val() {
				values = append(values, field, value)
			}
		default:
			s.t.Fatalf("%s is a %s", key, k.Type)
		}
		for _, v := range values {
			k.Values = append(k.Values, hex.EncodeToString([]byte(v)))
		}
		r.Keys[key] = k
	}
	return r
}

// restoreKeys writes the keys of a recording, and sets the clock to its time.
func (s *testStore) restoreKeys(r recording) {
	s.t.Helper()
	s.do("set", redisstore.TestClock, r.At)
	for key, k := range r.Keys {
		values := make([]string, len(k.Values))
		for i, v := range k.Values {
			raw, err := hex.DecodeString(v)
			if err != nil {
				s.t.Fatal(err)
			}
			values[i] = string(raw)
		}
		_, err := s.client.TxPipelined(s.t.Context(), func(p redis.Pipeliner) error {
			switch k.Type {
			case "string":
				p.Set(s.t.Context(), key, values[0], 0)
			case "zset":
				for i := 0; i < len(values); i += 2 {
					p.Do(s.t.Context(), "zadd", key, values[i+1], values[i])
				}
			case "hash":
				p.HSet(s.t.Context(), key, values)
			}
			if k.TTL > 0 {
				p.PExpire(s.t.Context(), key, time.Duration(k.TTL)*time.Millisecond)
			}
			return nil
		})
		if err != nil {
			s.t.Fatal(err)
		}
	}
}
