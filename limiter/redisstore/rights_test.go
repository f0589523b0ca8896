package redisstore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/limitertest"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/filetest"
	"github.com/weir-proxy/weir/test/redistest"
)

// documentedRights are the lines of proxy/docs/failure.md that set up an ACL user: for one server,
// what a cluster needs besides, and what a limiter of Redisson does.
func documentedRights(t *testing.T) (single, cluster, redisson []string) {
	t.Helper()
	text := filetest.Read(t, "../../proxy/docs/failure.md")
	var rights [][]string
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 3 && words[0] == "ACL" && words[1] == "SETUSER" {
			rights = append(rights, words[3:])
		}
	}
	if len(rights) != 3 {
		t.Fatalf("%d lines set rights; want 3", len(rights))
	}
	return rights[0], rights[1], rights[2]
}

// packageRights are those that README.md names, for a cluster.
func packageRights(t *testing.T) []string {
	t.Helper()
	text := filetest.Read(t, "README.md")
	_, needs, _ := strings.Cut(strings.ReplaceAll(string(text), "PREFIX", redisstore.DefaultPrefix), "An ACL user needs ")
	needs, _, _ = strings.Cut(needs, ";")
	rights := []string{"on", ">SECRET"}
	for i, code := range strings.Split(needs, "`") {
		if i%2 == 1 {
			rights = append(rights, strings.Fields(code)...)
		}
	}
	return rights
}

// grantRights makes the user weir on all servers.
func grantRights(t *testing.T, addrs []string, rights ...string) {
	t.Helper()
	for _, addr := range addrs {
		client := redis.NewClient(&redis.Options{Addr: addr})
		args := []any{"ACL", "SETUSER", "weir", "reset"}
		for _, right := range rights {
			args = append(args, right)
		}
		if err := client.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
		client.Close()
	}
}

// useAll does with a store what Weir does, for each algorithm, and returns the first error.
func useAll(t *testing.T, c redisstore.ClientConfig) error {
	t.Helper()
	c.Username, c.Password = "weir", "SECRET"
	s := storeOn(t, clientOf(t, c), redisstore.Options{Timeout: patient})
	if _, err := s.Check(t.Context()); err != nil {
		return err
	}
	for a := range limiter.NumAlgorithms {
		l := limitertest.LimitOf(a, a.String(), limiter.Rate{Count: 3, Window: time.Minute})
		l.Noted = !a.HasSteps() && !a.HasValues() && !a.HasLeases()
		claims := []limiter.Claim{{Key: limiter.Key{byte(a), 1}, Limit: l, Cost: 1, Value: limiter.Key{1}}}
		var d limiter.Decision
		for _, err := range []error{
			s.Take(t.Context(), claims, &d), s.Refund(t.Context(), claims, d.Permit), s.Peek(t.Context(), claims, &d),
			s.Ban(t.Context(), claims, time.Second), s.Reset(t.Context(), claims), s.Grant(t.Context(), claims),
		} {
			if err != nil {
				return err
			}
		}
		if l.Noted { // what a note names are keys of no command
			claims[0].Key[1]++ // none of its permits was given back in this millisecond
			err := s.Take(t.Context(), claims, &d)
			if n, failed := s.Return(t.Context(), []*limiter.Limit{l}, claims[0].Value); err != nil || failed != nil || n < 1 {
				return fmt.Errorf("permits of %d decisions returned: %w", n, errors.Join(err, failed))
			}
		}
		if _, err := s.Inspect(t.Context(), claims); err != nil {
			return err
		}
	}
	(&testStore{t: t}).until("the store hears", s.Hears)
	return nil
}

// useRedisson takes a permit of a limiter shared with Redisson.
func useRedisson(t *testing.T, c redisstore.ClientConfig) error {
	t.Helper()
	c.Username, c.Password = "weir", "SECRET"
	s := storeOn(t, clientOf(t, c), redisstore.Options{Timeout: patient})
	r, err := s.RateLimiter("redisson:demo:limit:1", "")
	if err != nil {
		return err
	}
	if err := r.SetRate(t.Context(), redisstore.RateConfig{Rate: limiter.Rate{Count: 3, Window: time.Minute}}); err != nil {
		return err
	}
	claims := []limiter.Claim{{Key: limiter.Key{9}, Cost: 1, RedissonName: "redisson:demo:limit:1", RedissonFormat: limiter.RedissonByte, Limit: &limiter.Limit{Name: "r", Rate: limiter.Rate{Count: 3, Window: time.Minute}}}}
	var d limiter.Decision
	return s.Take(t.Context(), claims, &d)
}

// A user with exactly the documented rights can do everything, and one with fewer cannot.
func TestRights_AreThoseOfTheDocuments(t *testing.T) {
	t.Parallel()
	single, more, redisson := documentedRights(t)
	one := redistest.Start(t)
	cluster := redistest.StartCluster(t, 3)
	for name, c := range map[string]struct {
		config redisstore.ClientConfig
		rights []string
	}{
		"single":  {redisstore.ClientConfig{Addrs: []string{one.Addr}}, single},
		"cluster": {redisstore.ClientConfig{Mode: redisstore.Cluster, Addrs: cluster.Addrs()}, append(append([]string{}, single...), more...)},
	} {
		t.Run(name, func(t *testing.T) {
			grantRights(t, c.config.Addrs, c.rights...)
			if err := useAll(t, c.config); err != nil {
				t.Errorf("with the documented rights: %v", err)
			}
			if err := useRedisson(t, c.config); err == nil || !strings.Contains(err.Error(), "NOPERM") {
				t.Errorf("a limiter of Redisson without its pattern: %v; want NOPERM", err)
			}
			grantRights(t, c.config.Addrs, append(c.rights, redisson...)...)
			if err := useRedisson(t, c.config); err != nil {
				t.Errorf("a limiter of Redisson: %v", err)
			}
		})
	}
	t.Run("a cluster with the rights of the package", func(t *testing.T) {
		grantRights(t, cluster.Addrs(), packageRights(t)...)
		if err := useAll(t, redisstore.ClientConfig{Mode: redisstore.Cluster, Addrs: cluster.Addrs()}); err != nil {
			t.Error(err)
		}
	})
	t.Run("a cluster with the rights for one server", func(t *testing.T) {
		grantRights(t, cluster.Addrs(), single...)
		if err := useAll(t, redisstore.ClientConfig{Mode: redisstore.Cluster, Addrs: cluster.Addrs()}); err == nil || !strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("%v; want NOPERM", err)
		}
	})
}
