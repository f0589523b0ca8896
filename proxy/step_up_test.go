package proxy

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/decisions"
	"github.com/weir-proxy/weir/proxy/limit"
	"github.com/weir-proxy/weir/proxy/view"
)

const challengeSecret = "a secret of the challenge, 32 bytes"

// steppingUp is a route whose limit on countries challenges clients, beside one that refuses.
const steppingUp = `
privacy: {hash_secret: "a secret of keys"}
keys:
  phone: {from: "header:X-Phone", normalize: digits}
  country: "header:X-Country"
routes:
  - name: send
    match: {path: /send}
    upstream: 'URL'
    refund_on: {status: [5xx]}
    limits:
      - name: unused
        key: country
        rates: [2/1h, 9/1d]
        return_on: {route: verify, key: phone}
        step_up: {challenge: sms, rates: [3/1h, 20/1d], jwt: {secret: "a secret of the challenge, 32 bytes", leeway: 10s}}
      - {name: total, key: global, rate: 7/1h}
  - {name: verify, match: {path: /verify}, upstream: 'URL', limits: [{name: guesses, key: phone, rate: 100/1h}]}
`

// A solved is a token of a challenge, with the claims to change; nil removes one.
type solved struct {
	phone  string
	change map[string]any
	method jwt.SigningMethod
	secret any
}

func (s solved) token(t *testing.T) string {
	t.Helper()
	now := time.Now()
	claims := jwt.MapClaims{"challenge": "sms", "sub": s.phone, "jti": fmt.Sprint(rand.Uint64(), s.phone), "iat": now.Unix(), "exp": now.Add(time.Minute).Unix()}
	for name, value := range s.change {
		if claims[name] = value; value == nil {
			delete(claims, name)
		}
	}
	if s.method == nil {
		s.method, s.secret = jwt.SigningMethodHS256, []byte(challengeSecret)
	}
	return signedToken(t, s.method, s.secret, claims)
}

// sendsCode sends a code, with a token unless it is empty, and returns the problem of the response.
func (p *testProxy) sendsCode(want int, phone, token string, more ...string) (problem map[string]any) {
	p.Helper()
	lines := append([]string{"X-Country: CN", "X-Phone: " + phone}, more...)
	if token != "" {
		lines = append(lines, "X-Challenge-Token: "+token)
	}
	rec := p.sends(want, "POST", "/send", lines...)
	_ = json.Unmarshal(rec.Body.Bytes(), &problem) // responses of the upstream have no body
	return problem
}

func (p *testProxy) challenges(limit string, result decisions.Challenge) float64 {
	return testutil.ToFloat64(p.metrics.Challenges.WithLabelValues("send", limit, result.String()))
}

func TestStepUp_ATokenPassesOnce(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w := newFor(t, steppingUp, use)
		unused := solved{phone: "1"}.token(t)
		w.sendsCode(200, "1", unused) // no challenge yet: the token is not used
		w.sendsCode(200, "2", "")
		problem := w.sendsCode(403, "3", "")
		if problem["challenge"] != "sms" || problem["status"] != 403.0 || !strings.HasSuffix(problem["type"].(string), "/challenge") {
			t.Errorf("the problem is %v; want the challenge sms", problem)
		}
		token := solved{phone: "+3"}.token(t) // normalized as the key is
		w.sendsCode(200, "3", token)
		if problem := w.sendsCode(403, "3", token); problem["challenge"] != "sms" || !strings.Contains(fmt.Sprint(problem["detail"]), "has been used") {
			t.Errorf("the problem of a used token is %v", problem)
		}
		w.sendsCode(200, "1", unused)
		w.sendsCode(403, "4", "")
		w.sends(503, "POST", "/send?status=503", "X-Country: CN", "X-Phone: 9", "X-Challenge-Token: "+solved{phone: "9"}.token(t)) // refunded
		w.sendsCode(200, "4", solved{phone: "4"}.token(t))
		rec := w.sends(429, "POST", "/send", "X-Country: CN", "X-Phone: 5", "X-Challenge-Token: "+solved{phone: "5"}.token(t))
		if got := rec.Header().Get("Retry-After"); got == "" || rec.Header().Get("RateLimit") == "" {
			t.Errorf("the refusal at the second rate has the header %v", rec.Header())
		}
		w.sends(200, "POST", "/verify", "X-Phone: 4") // returns what was taken at the second rate, too
		w.sendsCode(200, "6", solved{phone: "6"}.token(t))
		w.sends(200, "POST", "/verify", "X-Phone: 2")
		w.sendsCode(200, "7", "")
		for result, want := range map[decisions.Challenge]float64{decisions.ChallengePassed: 5, decisions.ChallengeIssued: 2, decisions.TokenUsed: 1} {
			if got := w.challenges("unused", result); got != want {
				t.Errorf("weir_challenges_total of %s = %v; want %v", result, got, want)
			}
		}
		var results []any
		for _, line := range w.lines("request") {
			if line["challenge"] != nil {
				results = append(results, line["challenge"])
			}
		}
		if got, want := fmt.Sprint(results), "[issued passed used passed issued passed passed passed]"; got != want {
			t.Errorf("the log has %s; want %s", got, want)
		}
		found := w.Decisions(view.DecisionQuery{Outcome: "refused", N: 100})
		if last := found[len(found)-1]; last.Challenge != "issued" || !strings.Contains(last.Summary, "refused by send.unused 2/1h") || !strings.Contains(last.Summary, "a challenge was issued") {
			t.Errorf("the first refusal is %+v", last)
		}
	})
}

func TestStepUp_RefusesOtherTokens(t *testing.T) {
	w := newFor(t, steppingUp, func(*Options) {})
	w.sendsCode(200, "1", "")
	w.sendsCode(200, "1", "")
	now := time.Now()
	good := solved{phone: "1"}.token(t)
	parts := strings.Split(good, ".")
	for name, c := range map[string]struct{ token, why string }{
		"none":              {"", "X-Challenge-Token"},
		"another number":    {solved{phone: "2"}.token(t), "another phone"},
		"another challenge": {solved{phone: "1", change: map[string]any{"challenge": "login"}}.token(t), "another challenge"},
		"no challenge":      {solved{phone: "1", change: map[string]any{"challenge": nil}}.token(t), "lacks one of the claims"},
		"no jti":            {solved{phone: "1", change: map[string]any{"jti": nil}}.token(t), "lacks one of the claims"},
		"long jti":          {solved{phone: "1", change: map[string]any{"jti": strings.Repeat("x", 300)}}.token(t), "jti that is too long"},
		"no sub":            {solved{phone: "1", change: map[string]any{"sub": nil}}.token(t), "lacks one of the claims"},
		"a number as sub":   {solved{phone: "1", change: map[string]any{"sub": 1}}.token(t), "of another type"},
		"no iat":            {solved{phone: "1", change: map[string]any{"iat": nil}}.token(t), "lacks one of the claims"},
		"no exp":            {solved{phone: "1", change: map[string]any{"exp": nil}}.token(t), "lacks a claim"},
		"expired":           {solved{phone: "1", change: map[string]any{"exp": now.Add(-11 * time.Second).Unix()}}.token(t), "has expired"},
		"too old":           {solved{phone: "1", change: map[string]any{"iat": now.Add(-5*time.Minute - 11*time.Second).Unix()}}.token(t), "is too old"},
		"of the future":     {solved{phone: "1", change: map[string]any{"iat": now.Add(time.Minute).Unix()}}.token(t), "in the future"},
		"alg none":          {solved{"1", nil, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType}.token(t), "algorithm"},
		"another secret":    {solved{"1", nil, jwt.SigningMethodHS256, []byte("another secret, also of 32 bytes")}.token(t), "signature"},
		"forged":            {parts[0] + "." + strings.Split(solved{phone: "1"}.token(t), ".")[1] + "." + parts[2], "signature"},
		"no token":          {"?", "malformed"},
	} {
		problem := w.sendsCode(403, "1", c.token)
		if problem["challenge"] != "sms" || !strings.Contains(fmt.Sprint(problem["detail"]), c.why) {
			t.Errorf("%s: the problem is %v; want %q", name, problem, c.why)
		}
	}
	w.sendsCode(403, "1", good, "X-Challenge-Token: "+good)
	w.sendsCode(200, "1", good)
	w.sendsCode(403, "1", good)
	w.sendsCode(200, "1", solved{phone: "1", change: map[string]any{"jti": "same"}}.token(t))
	w.sendsCode(403, "1", solved{phone: "1", change: map[string]any{"jti": "same", "iss": "another text with the same id"}}.token(t))
	if got := w.challenges("unused", decisions.TokenInvalid); got != 17 {
		t.Errorf("%v tokens are invalid; want 17", got)
	}
}

// The token stays good if another limit refuses the request: all or nothing.
func TestStepUp_OtherLimitsRefuse(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w := newFor(t, strings.ReplaceAll(steppingUp, "rate: 7/1h", "rate: 3/1h"), use)
		for range 2 {
			w.sendsCode(200, "1", "")
		}
		w.sendsCode(200, "1", solved{phone: "1"}.token(t))
		token := solved{phone: "1"}.token(t)
		if problem := w.sendsCode(429, "1", token); problem["challenge"] != nil {
			t.Errorf("the problem is %v; no challenge helps", problem)
		}
		if problem := w.sendsCode(429, "1", ""); problem["challenge"] != nil {
			t.Errorf("the problem is %v; no challenge helps", problem)
		}
		w.sends(200, "POST", "/verify", "X-Phone: 1") // returns all three to unused, and nothing to total
		w.sendsCode(429, "1", "")
	})
}

// Two limits may want the same token, and one of them may refuse only when the other has stepped up.
func TestStepUp_OneTokenForTwoLimits(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w := newFor(t, strings.ReplaceAll(steppingUp, "- {name: total, key: global, rate: 7/1h}",
			"- {name: phone, key: phone, rate: 1/1h, step_up: {challenge: sms, rate: 1/1h, jwt: {secret: '"+challengeSecret+"'}}}"), use)
		w.sendsCode(200, "1", "")
		w.sendsCode(403, "1", "") // by phone
		w.sendsCode(200, "2", "")
		w.sendsCode(403, "3", "") // by unused
		w.sendsCode(200, "1", solved{phone: "1"}.token(t))
		if a, b := w.challenges("unused", decisions.ChallengePassed), w.challenges("phone", decisions.ChallengePassed); a != 1 || b != 1 {
			t.Errorf("unused, phone passed %v, %v; want 1, 1", a, b)
		}
		w.sendsCode(429, "1", solved{phone: "1"}.token(t)) // at the second rate of phone
	})
}

// In shadow mode nobody is challenged, and a token is not used.
func TestStepUp_Shadow(t *testing.T) {
	w := newFor(t, strings.Replace(steppingUp, "key: country\n", "key: country\n        mode: shadow\n", 1), func(*Options) {})
	token := solved{phone: "1"}.token(t)
	for range 7 {
		w.sendsCode(200, "1", token)
	}
	w.sendsCode(429, "1", token)
	w.counted(5, w.metrics.Decisions.WithLabelValues("send", "unused", limit.ShadowRefused))
}

// Without keys no token is accepted, and nobody passes by a token that anybody can sign.
func TestStepUp_WithoutKeys(t *testing.T) {
	w := newFor(t, strings.ReplaceAll(steppingUp, `secret: "`+challengeSecret+`"`, "secret: '${WEIR_NO_SUCH_SECRET:-}'"), func(*Options) {})
	w.sendsCode(200, "1", "")
	w.sendsCode(200, "1", "")
	for _, secret := range []string{challengeSecret, "x"} {
		token := solved{"1", nil, jwt.SigningMethodHS256, []byte(secret)}.token(t)
		if problem := w.sendsCode(403, "1", token); !strings.Contains(fmt.Sprint(problem["detail"]), "no keys") {
			t.Errorf("the problem is %v; want that there are no keys", problem)
		}
	}
}

// The token is for Weir alone.
func TestStepUp_TokenIsNotForwarded(t *testing.T) {
	seen := make(chan http.Header, 1)
	yaml := upstreamYAML(t, func(w http.ResponseWriter, r *http.Request) { seen <- r.Header.Clone() },
		"limits: [{name: ip, key: client_ip, rate: 2/1h, step_up: {rate: 1/1h, jwt: {secret: '"+challengeSecret+"'}}}]")
	w := newProxy(t, yaml)
	w.sends(200, "GET", "/a", "X-Challenge-Token: x", "X-Other: y")
	if h := <-seen; h.Get("X-Challenge-Token") != "" || h.Get("X-Other") != "y" {
		t.Errorf("the upstream received %v", h)
	}
}

// Explain uses no token.
func TestStepUp_Explain(t *testing.T) {
	w := newFor(t, steppingUp, func(*Options) {})
	token := solved{phone: "1"}.token(t)
	explain := func(token string) view.Explanation {
		lines := []string{"X-Country: CN", "X-Phone: 1"}
		if token != "" {
			lines = append(lines, "X-Challenge-Token: "+token)
		}
		return w.explains("POST", "/send", lines...)
	}
	if e := explain(token); e.Upstream == nil || e.Decision.Reason != "" || e.Limits[0].StepUp != "then 403 with the challenge sms, and passes with a token for its phone in X-Challenge-Token at 3/1h 20/1d" {
		t.Errorf("before the rate is used up: %+v", e)
	}
	w.sendsCode(200, "1", "")
	w.sendsCode(200, "1", "")
	if e := explain(""); e.Answer == nil || e.Answer.Status != 403 || !strings.Contains(e.Answer.Body, `"challenge":"sms"`) {
		t.Errorf("without a token: %+v", e.Answer)
	}
	for range 2 {
		if e := explain(token); e.Upstream == nil || !e.Decision.Allowed || !strings.Contains(e.Decision.Reason, "step_up") {
			t.Errorf("with a token: %+v", e)
		}
	}
	w.sendsCode(200, "1", token)
	if e := explain(token); e.Answer == nil || e.Answer.Status != 403 || e.Decision.Allowed {
		t.Errorf("with a used token: %+v", e)
	}
}

// A reset of a key gives back what it has at the rates of step_up.
func TestStepUp_Reset(t *testing.T) {
	w := newFor(t, strings.ReplaceAll(steppingUp, "7/1h", "70/1h"), func(*Options) {})
	useUp := func() {
		t.Helper()
		w.sendsCode(200, "1", "")
		w.sendsCode(200, "1", "")
		for range 3 {
			w.sendsCode(200, "1", solved{phone: "1"}.token(t))
		}
		w.sendsCode(429, "1", solved{phone: "1"}.token(t))
	}
	useUp()
	w.changes(view.KeyChange{Action: view.KeyReset}, "country=CN")
	useUp()
}

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

// The store forgets by its own clock that a token was used, and so that clock says how old a token is: that of a node may be behind.
func TestStepUp_AgeIsByTheClockOfTheStore(t *testing.T) {
	ahead := time.Duration(0)
	w := newFor(t, strings.ReplaceAll(steppingUp, "'URL'", "echo"), func(o *Options) {
		o.Store = limiter.NewMemory(limiter.MemoryOptions{Clock: func() time.Time { return time.Now().Add(ahead) }})
	})
	w.sendsCode(200, "1", "")
	w.sendsCode(200, "1", "")
	token := solved{phone: "1", change: map[string]any{"exp": time.Now().Add(time.Hour).Unix()}}.token(t)
	w.sendsCode(200, "1", token)
	ahead = 20 * time.Minute
	if problem := w.sendsCode(403, "1", token); !strings.Contains(fmt.Sprint(problem["detail"]), "is too old") {
		t.Errorf("the problem is %v; want that the token is too old", problem)
	}
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
