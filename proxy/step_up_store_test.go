package proxy

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// In any schedule no window has more than the rates allow, and a token passes once. Limits of two nodes share the store.
func TestStepUp_NeverGrantsTooMuch(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		for seed := range uint64(6) {
			yaml := strings.NewReplacer("name: send", fmt.Sprint("name: send", seed), "name: verify", fmt.Sprint("name: verify", seed), "route: verify", fmt.Sprint("route: verify", seed),
				"[2/1h, 9/1d]", "[3/1h, 9/1d]", "[3/1h, 20/1d]", "[5/1h, 20/1d]").Replace(steppingUp)
			a := newFor(t, yaml, use)
			b := newFor(t, yaml, func(o *Options) { o.Store = a.admitter.SharedStore() })
			r := rand.New(rand.NewPCG(seed, 7))
			tokens := make([]string, 5)
			for i := range tokens {
				tokens[i] = solved{phone: fmt.Sprint(i)}.token(t)
			}
			var mu sync.Mutex
			granted, passed := 0, map[string]int{}
			var all sync.WaitGroup
			for range 40 {
				p, i := []*testProxy{a, b}[r.IntN(2)], r.IntN(2*len(tokens))
				all.Go(func() {
					req := httptest.NewRequest("POST", "/send", nil)
					req.Header = http.Header{"X-Country": {"CN"}, "X-Phone": {fmt.Sprint(i)}}
					if i < len(tokens) {
						req.Header.Set("X-Challenge-Token", tokens[i])
					}
					rec := httptest.NewRecorder()
					p.ServeHTTP(rec, req)
					mu.Lock()
					defer mu.Unlock()
					if rec.Code == 200 {
						granted++
						passed[rec.Header().Get("RateLimit-Policy")]++
					}
				})
			}
			all.Wait()
			if granted > 7 || granted < 3 {
				t.Errorf("seed %d: %d passed; want 3 to 7, as total allows", seed, granted)
			}
			for policy, n := range passed {
				if strings.Contains(policy, "q=5;") && n > 5 || strings.Contains(policy, "q=3;") && n > 3 {
					t.Errorf("seed %d: %d passed at %s", seed, n, policy)
				}
			}
		}
	})
}

// A token that many requests carry at the same time passes one.
func TestStepUp_OnceInParallel(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w := newFor(t, steppingUp, use)
		w.sendsCode(200, "1", "")
		w.sendsCode(200, "1", "")
		token := solved{phone: "1"}.token(t)
		if passed := atOnce(20, func(int) bool {
			code := w.send("POST", "/send", "X-Country: CN", "X-Phone: 1", "X-Challenge-Token: "+token).Code
			if code != 200 && code != 403 {
				t.Errorf("status %d; want 200 or 403", code)
			}
			return code == 200
		}); passed != 1 {
			t.Errorf("%d passed; want one", passed)
		}
	})
}

// A token cannot be used again for as long as any node accepts it.
func TestStepUp_UsedForAsLongAsItIsAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newProxy(t, strings.ReplaceAll(steppingUp, "'URL'", "echo"))
		w.sendsCode(200, "1", "")
		w.sendsCode(200, "1", "")
		now := time.Now()
		token := solved{phone: "1", change: map[string]any{"iat": now.Add(10 * time.Second).Unix(), "exp": now.Add(time.Hour).Unix()}}.token(t)
		w.sendsCode(200, "1", token)
		for range 5*60 + 25 {
			time.Sleep(time.Second) // virtual
			w.sendsCode(403, "1", token)
		}
		if problem := w.sendsCode(403, "1", token); !strings.Contains(fmt.Sprint(problem["detail"]), "is too old") {
			t.Errorf("the problem is %v; want that the token is too old", problem)
		}
	})
}

// Whether a token was used is known to the store alone.
func TestStepUp_StoreUnavailable(t *testing.T) {
	for policy, want := range map[string][3]int{"local": {200, 403, 503}, "deny": {503, 503, 503}, "allow": {200, 200, 200}} {
		w := newFor(t, strings.Replace(steppingUp, "key: country\n", "key: country\n        on_store_failure: "+policy+"\n", 1), func(*Options) {})
		w.store.fail(fmt.Errorf("%w: gone", limiter.ErrUnavailable))
		w.sendsCode(want[0], "1", "")
		w.sendsCode(want[0], "1", "")
		w.sendsCode(want[1], "1", "")
		w.sendsCode(want[2], "1", solved{phone: "1"}.token(t))
		for _, line := range w.lines("request")[3:] {
			if want[2] == 503 && line["limit"] != nil {
				t.Errorf("%s: the line is %v; no limit has refused", policy, line)
			}
		}
	}
}

// Over days of requests at any times, no hour has more than the rates allow, and a token passes once.
func TestStepUp_NoWindowHasTooMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newProxy(t, strings.NewReplacer("'URL'", "echo", "[2/1h, 9/1d]", "[2/1h, 90/1d]", "[3/1h, 20/1d]", "[3/1h, 200/1d]", "rate: 7/1h", "rate: 4/1h").Replace(steppingUp))
		r := rand.New(rand.NewPCG(1, 2))
		granted, used, results := map[string][]time.Time{}, map[string]bool{}, map[int]int{}
		token := ""
		for range 800 {
			time.Sleep(time.Duration(r.IntN(1000)) * time.Second) // virtual
			carried := ""
			switch r.IntN(3) {
			case 0:
				token = solved{phone: "1"}.token(t)
				carried = token
			case 1:
				carried = token // perhaps used, perhaps too old
			}
			lines := []string{"X-Country: CN", "X-Phone: 1"}
			if carried != "" {
				lines = append(lines, "X-Challenge-Token: "+carried)
			}
			rec := w.send("POST", "/send", lines...)
			results[rec.Code]++
			if rec.Code != http.StatusOK {
				continue
			}
			rate := "first"
			if strings.Contains(rec.Header().Get("RateLimit-Policy"), "q=3;") {
				if rate = "second"; used[carried] || carried == "" {
					t.Fatal("a token passed twice, or none passed")
				}
				used[carried] = true
			}
			for _, name := range []string{rate, "total"} {
				granted[name] = append(granted[name], time.Now())
			}
		}
		for name, most := range map[string]int{"first": 2, "second": 3, "total": 4} {
			at := granted[name]
			for i := range at {
				if i >= most && at[i].Sub(at[i-most]) < time.Hour {
					t.Errorf("%s: more than %d within an hour of %v", name, most, at[i])
				}
			}
			if len(at) < 100 {
				t.Errorf("%s: only %d are granted", name, len(at))
			}
		}
		if results[403] < 100 || results[429] < 100 {
			t.Errorf("status and requests: %v; want all of 200, 403 and 429", results)
		}
	})
}
