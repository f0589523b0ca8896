package proxy

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/proxy/directive"
	"github.com/weir-proxy/weir/proxy/view"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// desk is a file with limits of all kinds on one phone number.
const operatedConfig = `
keys:
  phone: {from: "header:X-Phone", normalize: {as: e164, default_region: CN}, sensitive: true, on_missing: {use: ip}}
  country: {of: phone, part: country}
  ip: {from: client_ip}
  pair: {join: [ip, phone]}
routes:
  - name: send
    match: {path: /send}
    respond: {body: ok}
    limits:
      - {name: phone, key: phone, rates: [2/1h, 9/1d], penalty: {ban: 2h, after: 3}}
      - {name: spare, key: phone, rate: 50/1h, algorithm: gcra}
      - {name: country, key: country, rate: 100/1h, algorithm: sliding_log}
      - {name: pair, key: pair, rate: 40/1h}
      - {name: trial, key: phone, rate: 1/1h, mode: shadow}
      - {name: fan, key: ip, distinct: phone, rate: 30/1h}
  - name: verify
    match: {path: /verify}
    respond: {body: ok}
    limits:
      - {name: guesses, key: phone, rate: 5/10m, algorithm: fixed_window}
      - {name: other, key: "header:X-User", rate: 5/10m}
`

const phoneLine = "X-Phone: +86 138 0013 8000"

// standing asks for how a key stands; pairs are KEY=VALUE, and filters @route, %limit.
func (p *testProxy) standing(pairs ...string) (view.KeyStanding, error) {
	return p.Proxy.Standing(p.Context(), query(pairs...))
}

func query(pairs ...string) (q view.KeyQuery) {
	for _, text := range pairs {
		if route, ok := strings.CutPrefix(text, "@"); ok {
			q.Route = route
		} else if limit, ok := strings.CutPrefix(text, "%"); ok {
			q.Limit = limit
		} else if p, err := view.ParseKeyPair(text); err == nil {
			q.Pairs = append(q.Pairs, p)
		}
	}
	return q
}

// stands wants a standing, and returns its limits by ROUTE.LIMIT.
func (p *testProxy) stands(pairs ...string) map[string]view.LimitStanding {
	p.Helper()
	s, err := p.standing(pairs...)
	if err != nil {
		p.Fatalf("standing of %v: %v", pairs, err)
	}
	all := map[string]view.LimitStanding{}
	for _, l := range s.Limits {
		all[l.Route+"."+l.Limit] = l
	}
	return all
}

// changes wants a change to succeed.
func (p *testProxy) changes(c view.KeyChange, pairs ...string) view.KeyResult {
	p.Helper()
	c.KeyQuery = query(pairs...)
	r, err := p.Change(p.Context(), c)
	if err != nil {
		p.Fatalf("%s %v: %v", c.Action, pairs, err)
	}
	return r
}

func names(limits map[string]view.LimitStanding) string {
	var all []string
	for name := range limits {
		all = append(all, name)
	}
	return joinNames(all)
}

// Every limit that counts by a phone number is found, in whatever spelling it is named,
// and says what requests have used.
func TestStanding_OfAllLimits(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w := newProxy(t, operatedConfig, use)
		w.sendsAll([]int{200, 200, 429}, "POST", "/send", phoneLine)
		w.sends(200, "POST", "/verify", phoneLine, "X-User: a")
		for _, spelled := range []string{"+8613800138000", "13800138000", "0086 138-0013-8000"} {
			all := w.stands("phone=" + spelled)
			if got, want := names(all), "send.country, send.phone, send.spare, send.trial, verify.guesses"; got != want {
				t.Fatalf("limits %s; want %s", got, want)
			}
			if got := names(w.stands("phone="+spelled, "%send.phone")); got != "send.phone" {
				t.Errorf("by its full name: limits %s", got)
			}
			phone := all["send.phone"]
			if h, d := phone.Windows[0], phone.Windows[1]; h.Rate != "2/1h" || h.Used != 2 || h.Left != 0 || h.Most != 2 || d.Used != 2 || d.Left != 7 ||
				h.Next.IsZero() || h.Full.Before(h.Next) || phone.Penalty == nil || phone.Penalty.Refused != 1 || phone.Penalty.After != 3 {
				t.Errorf("%+v %+v", phone, phone.Penalty)
			}
			if phone.Masked != "phone=+86138****8000" || phone.Key != "phone" || phone.Mode != "enforce" || phone.Derived {
				t.Errorf("%+v", phone)
			}
			if c := all["send.country"]; c.Masked != "country=CN" || !c.Derived || c.Windows[0].Used != 2 {
				t.Errorf("%+v; want the country's count, as derived", c)
			}
			if s := all["send.trial"]; s.Mode != "shadow" || s.Windows[0].Used != 1 {
				t.Errorf("%+v; want the shadow limit's own count", s)
			}
			if g := all["verify.guesses"]; g.Windows[0].Used != 1 || g.Algorithm != "fixed_window" {
				t.Errorf("%+v", g)
			}
			if hash := w.lines("request")[2]["key"]; phone.Hash != hash {
				t.Errorf("hash %s; want that of the log, %s", phone.Hash, hash)
			}
		}
		if got := names(w.stands("ip=192.0.2.1")); got != "send.country, send.fan, send.pair, send.phone, send.spare, send.trial, verify.guesses" {
			t.Errorf("limits by an address %s; want those that use it in place of a phone, too", got)
		}
		if fan := w.stands("ip=192.0.2.1", "%fan")["send.fan"].Windows[0]; fan.Used != 1 {
			t.Errorf("%+v; want one number", fan)
		}
		if got := names(w.stands("ip=192.0.2.1", "phone=13800138000")); got != "send.pair" {
			t.Errorf("limits by two keys together: %s", got)
		}
		if got := names(w.stands("country=CN")); got != "send.country" {
			t.Errorf("limits by a country: %s", got)
		}
		if got := names(w.stands("header:x-user=a")); got != "verify.other" {
			t.Errorf("limits by an origin: %s", got)
		}
		if got := names(w.stands("phone=13800138000", "@verify")); got != "verify.guesses" {
			t.Errorf("limits of one route: %s", got)
		}
		w.sends(429, "POST", "/send", phoneLine) // nothing was taken, and nothing given
	})
}

// Whoever is refused passes again after each action that says so, and others stay where
// they are.
func TestChange_ResetGrantBanUnban(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w := newProxy(t, operatedConfig, use)
		other := "X-Phone: +8613900139000"
		w.sends(200, "POST", "/send", other)
		w.sendsAll([]int{200, 200, 429}, "POST", "/send", phoneLine)
		r := w.changes(view.KeyChange{Action: view.KeyGrant, Permits: 1}, "phone=13800138000", "%phone")
		if len(r.Changed) != 1 || r.Changed[0].Windows[0].Left != 1 || !r.Everywhere {
			t.Errorf("%+v", r)
		}
		if text, err := json.Marshal(r); err != nil || strings.Contains(string(text), "13800138000") || !strings.Contains(string(text), "+86138****8000") {
			t.Errorf("%s, %v; want the number masked", text, err)
		}
		w.sendsAll([]int{200, 429}, "POST", "/send", phoneLine)
		r = w.changes(view.KeyChange{Action: view.KeyReset, Reason: "a customer called"}, "phone=13800138000")
		if len(r.Changed) != 4 || len(r.Skipped) != 1 || r.Skipped[0].Limit != "country" || r.Reason != "a customer called" {
			t.Errorf("%+v; want all but the country", r)
		}
		for _, l := range r.Changed {
			if l.Windows[0].Used != 0 || l.Penalty != nil && l.Penalty.Refused != 0 {
				t.Errorf("%+v after a reset", l)
			}
		}
		w.sendsAll([]int{200, 200, 429}, "POST", "/send", phoneLine)
		if got := w.stands("country=CN")["send.country"].Windows[0].Used; got != 6 {
			t.Errorf("%d of the country are used, want 6: nobody has named it", got)
		}
		w.changes(view.KeyChange{Action: view.KeyReset}, "phone=13800138000")
		r = w.changes(view.KeyChange{Action: view.KeyBan, For: view.Span(time.Hour)}, "phone=13800138000", "@verify")
		if until := r.Changed[0].BannedUntil; until.Before(r.At.Add(59*time.Minute)) || until.After(r.At.Add(time.Hour)) {
			t.Errorf("banned until %v, at %v", until, r.At)
		}
		w.sends(429, "POST", "/verify", phoneLine, "X-User: a")
		w.sends(200, "POST", "/verify", other, "X-User: a")
		w.sends(200, "POST", "/send", phoneLine)
		r = w.changes(view.KeyChange{Action: view.KeyUnban}, "phone=13800138000")
		if !r.Changed[0].BannedUntil.IsZero() {
			t.Errorf("%+v", r.Changed[0])
		}
		w.sends(200, "POST", "/verify", phoneLine, "X-User: a")

		w.changes(view.KeyChange{Action: view.KeyBan, For: view.Span(time.Hour)}, "country=CN")
		w.sends(429, "POST", "/send", other)
		w.changes(view.KeyChange{Action: view.KeyReset}, "country=CN")
		w.sends(200, "POST", "/send", other)
		if got := w.stands("phone=13900139000")["send.phone"].Windows[0].Used; got != 2 {
			t.Errorf("%d used by another number, want 2", got)
		}
	})
}

// An id stands for a key whose value nobody knows any more, and the hash of the log does
// not give the value away.
func TestChange_ByID(t *testing.T) {
	w := newProxy(t, operatedConfig)
	w.sendsAll([]int{200, 200, 429}, "POST", "/send", phoneLine)
	phone := w.stands("phone=13800138000")["send.phone"]
	if strings.Contains(phone.ID, limiter.KeyOf("phone", "+8613800138000").String()) {
		t.Errorf("the id %s tells what the key is made of", phone.ID)
	}
	again := w.stands("phone=" + phone.ID)
	if got := again["send.phone"]; got.Windows[0].Used != 2 || got.Hash != phone.Hash || got.ID != phone.ID || got.Masked != "phone=+86138****8000" {
		t.Errorf("%+v; want the same key", got)
	}
	w.changes(view.KeyChange{Action: view.KeyReset}, "phone="+phone.ID, "%phone")
	w.sends(200, "POST", "/send", phoneLine)
	if _, err := newProxy(t, operatedConfig).standing("phone=" + phone.ID); !errors.Is(err, view.ErrKeyQuery) {
		t.Errorf("%v; want that the id is another proxy's", err)
	}
}

// The address of the client is ip, as in configuration files, or client_ip.
func TestStanding_NamesOfTheAddress(t *testing.T) {
	w := newProxy(t, `
routes: [{name: send, match: {path: /send}, respond: {body: ok}, limits: [{key: client_ip, rate: 2/1h}]}]
`)
	for _, pair := range []string{"ip=192.0.2.1", "client_ip=192.0.2.1"} {
		if s, err := w.standing(pair); err != nil || len(s.Limits) != 1 {
			t.Errorf("%s: %+v, %v; want the limit of the address", pair, s.Limits, err)
		}
	}
}

func TestStanding_SaysWhatIsWrong(t *testing.T) {
	w := newProxy(t, operatedConfig)
	for _, c := range []struct {
		pairs string
		about string
	}{
		{"", "no key is named"},
		{"phon=1", `no limit counts by "phon"; write one of client_ip`},
		{"phone=12345", "not a valid phone number"},
		{"phone=12345", "CN"},
		{"ip=nobody", "not an address"},
		{"pair=1", "pair consists of several keys; give a value for each of ip, phone"},
		{"country=china", "country: key not valid"},
		{"phone=13800138000 @nowhere", `there is no route "nowhere"; write one of send, verify`},
		{"phone=13800138000 %none", `there is no limit "none"; write one of`},
		{"phone=13800138000 @send %other", `there is no limit "other" on route send; write one of`},
		{"phone=13800138000 %other", `no limit counts by "phone" among those of this route or name`},
		{"phone=id:zzz", `"id:zzz" is neither a whole id nor a whole hash`},
		{"phone=hash:0123", `"hash:0123" is neither a whole id nor a whole hash`},
		{"phone=13800138000 phone=1", "given twice"},
		{"phone=\uFFFD", "not UTF-8"}, // as JSON reads other bytes
		{"phone=13800138000 header:X-User=a", "together"},
		{"phone=hash:0123456789ab", "no recent request"},
	} {
		_, err := w.standing(strings.Fields(c.pairs)...)
		if !errors.Is(err, view.ErrKeyQuery) || !strings.Contains(err.Error(), strings.TrimSuffix(c.about, " client_ip")) {
			t.Errorf("%s: %v; want it to say %q", c.pairs, err, c.about)
		}
		if err != nil && (strings.Contains(err.Error(), "12345") || strings.Contains(err.Error(), "nobody")) {
			t.Errorf("%v repeats the value", err)
		}
	}
	for _, c := range []struct {
		view.KeyChange
		about string
	}{
		{view.KeyChange{Action: "drop"}, "reset, grant, ban or unban"},
		{view.KeyChange{Action: view.KeyBan}, "write for example 1h"},
		{view.KeyChange{Action: view.KeyBan, For: view.Span(-time.Hour)}, "1h"},
		{view.KeyChange{Action: view.KeyBan, For: view.Span(400 * 24 * time.Hour)}, "from 1ms to 366d"},
		{view.KeyChange{Action: view.KeyGrant}, "whole number"},
		{view.KeyChange{Action: view.KeyReset, KeyQuery: query("phone=13800138000", "%country")}, "name that to change it"},
	} {
		if len(c.Pairs) == 0 {
			c.KeyQuery = query("phone=13800138000")
		}
		if _, err := w.Change(t.Context(), c.KeyChange); !errors.Is(err, view.ErrKeyQuery) || !strings.Contains(err.Error(), c.about) {
			t.Errorf("%+v: %v; want it to say %q", c.KeyChange, err, c.about)
		}
	}
	for _, text := range []string{"phone", "=1", ""} {
		if _, err := view.ParseKeyPair(text); !errors.Is(err, view.ErrKeyQuery) {
			t.Errorf("ParseKeyPair(%q): %v", text, err)
		}
	}
}

// What is said over the API is read back as it was written.
func TestKeyChange_JSON(t *testing.T) {
	const text = `{"pairs":[{"key":"phone","value":"1"}],"route":"send","action":"ban","for":"1h30m","reason":"abuse"}`
	var c view.KeyChange
	if err := json.Unmarshal([]byte(text), &c); err != nil || c.For != view.Span(90*time.Minute) || c.Pairs[0].Value != "1" {
		t.Fatalf("%+v, %v", c, err)
	}
	if got, err := json.Marshal(c); err != nil || string(got) != text {
		t.Errorf("%s, %v; want %s", got, err, text)
	}
	if err := json.Unmarshal([]byte(`{"for":"soon"}`), &c); !errors.Is(err, view.ErrKeyQuery) {
		t.Errorf("%v", err)
	}
}

// While a secret is replaced, what counts under both is seen and changed.
func TestChange_UnderBothSecrets(t *testing.T) {
	const limits = "keys: {phone: {from: 'header:X-Phone'}}\n"
	file := func(privacy string) string {
		return privacy + limits + limitYAML("{name: l, key: phone, rate: 2/1h}")
	}
	w := newProxy(t, file("privacy: {hash_secret: first-secret-of-us}\n"))
	w.sendsAll(times(2, 200), "GET", "/a", "X-Phone: 1")
	w.reloads(file("privacy: {hash_secret: second-secret-of-us, previous_secret: first-secret-of-us}\n"))
	if got := w.stands("phone=1")["a.l"].Windows[0]; got.Used != 2 || got.Left != 0 {
		t.Errorf("%+v; want what was counted under the previous secret", got)
	}
	w.sends(429, "GET", "/a", "X-Phone: 1")
	w.changes(view.KeyChange{Action: view.KeyReset}, "phone=1")
	w.sendsAll(times(2, 200), "GET", "/a", "X-Phone: 1")
	s, err := w.standing("phone=" + w.stands("phone=2")["a.l"].ID) // of which no request is remembered
	if err != nil || len(s.Notes) == 0 || !strings.Contains(s.Notes[0], "previous_secret") {
		t.Errorf("%+v, %v; want a note that the former key is not known by an id", s, err)
	}
}

// A rate of its own, and pauses, show as they are in force.
func TestStanding_OverridesAndOtherKinds(t *testing.T) {
	w := newProxy(t, limitYAML("{name: rate, key: 'header:X-User', rate: 2/1h, overrides: {vip: [7/1h, 70/1d]}}, {name: pause, key: 'header:X-User', cooldown: [1m, 1h]}, {name: held, key: 'header:X-User', concurrent: 3}"))
	w.sends(200, "GET", "/a", "X-User: vip")
	all := w.stands("header:X-User=vip")
	if got := all["a.rate"].Windows; len(got) != 2 || got[0].Rate != "7/1h" || got[0].Used != 1 || got[1].Left != 69 {
		t.Errorf("%+v; want the rates of the key", got)
	}
	if got := all["a.pause"].Windows[0]; got.Used != 1 || got.Left != 0 || got.Name != "pause-cooldown" || got.Next.IsZero() || !got.Full.After(got.Next) {
		t.Errorf("%+v; want one step", got)
	}
	if got := all["a.held"].Windows[0]; got.Used != 0 || got.Left != 3 || got.Name != "held-held" {
		t.Errorf("%+v; want nothing held", got)
	}
	w.sends(429, "GET", "/a", "X-User: vip")
	w.changes(view.KeyChange{Action: view.KeyReset}, "header:X-User=vip", "%pause")
	w.sends(200, "GET", "/a", "X-User: vip")
}

// nodes are two proxies on one Redis, or a cluster of it.
func nodes(t *testing.T, yaml string, c redisstore.ClientConfig) (near, far *testProxy) {
	t.Helper()
	as := func() *testProxy {
		return newProxy(t, "store: redis\n"+yaml, func(o *Options) {
			o.Store, o.Nodes = redisStoreOf(t, c, redisstore.Options{}), func() int { return 2 }
			o.Config.Redis.Timeout = time.Minute
		})
	}
	return as(), as()
}

// A cutNode is a proxy that reaches its Redis by way, with a limit l of X-User on its route a.
type cutNode struct {
	*testProxy
	server *redistest.Server
	way    *redistest.FaultProxy
}

func newCutNode(t *testing.T, terms string) cutNode {
	t.Helper()
	server := redistest.Start(t)
	way := redistest.NewFaultProxy(t, server.Addr)
	yaml := "routes:\n  - {name: a, match: {path: /a}, respond: {body: ok}, limits: [{name: l, key: 'header:X-User', " + terms + "}]}\n"
	near, _ := nodes(t, yaml, redisstore.ClientConfig{Addrs: []string{way.Addr}})
	return cutNode{near, server, way}
}

// leave takes Redis away, and comeBack returns it.
func (c cutNode) leave()    { c.way.Redirect("127.0.0.1:1") }
func (c cutNode) comeBack() { c.way.Redirect(c.server.Addr) }

// applies waits until no change waits for Redis.
func (c cutNode) applies() {
	c.Helper()
	await.Until(c.TB, "nothing waits", func() bool {
		c.ApplyDeferred(c.Context())
		return len(c.deferred.waiting) == 0
	})
}

// A change on one node holds on the others at once: what they remember of refusals, what
// they would decide by without Redis, and what each counts by itself.
func TestChange_ReachesEveryNode(t *testing.T) {
	const file = `
routes:
  - {name: all, match: {path: /all}, respond: {body: ok}, limits: [{name: l, key: 'header:X-User', rate: 2/1h}]}
  - {name: own, match: {path: /own}, respond: {body: ok}, limits: [{name: l, key: 'header:X-User', rate: 2/1h, scope: per_instance}]}
`
	modes := map[string]func() redisstore.ClientConfig{
		"single": func() redisstore.ClientConfig {
			return redisstore.ClientConfig{Addrs: []string{redistest.Start(t).Addr}}
		},
		"cluster": func() redisstore.ClientConfig {
			return redisstore.ClientConfig{Mode: redisstore.Cluster, Addrs: redistest.StartMasters(t, 3).Addrs()}
		},
	}
	for mode, c := range modes {
		t.Run(mode, func(t *testing.T) {
			near, far := nodes(t, file, c())
			for _, n := range []*testProxy{near, far} {
				n.sendsAll([]int{200, 200, 429}, "GET", "/own", "X-User: a")
			}
			far.sendsAll(times(2, 200), "GET", "/all", "X-User: a")
			far.sends(429, "GET", "/all", "X-User: a") // and knows it from now on
			near.sends(429, "GET", "/all", "X-User: a")
			near.changes(view.KeyChange{Action: view.KeyReset}, "header:X-User=a")
			await.Until(far.TB, "far lets pass", func() bool { return far.send("GET", "/all", "X-User: a").Code == 200 })
			near.sends(200, "GET", "/own", "X-User: a")
			await.Until(far.TB, "far forgets what it counts by itself", func() bool { return far.send("GET", "/own", "X-User: a").Code == 200 })

			near.changes(view.KeyChange{Action: view.KeyBan, For: view.Span(time.Hour)}, "header:X-User=b")
			await.Until(far.TB, "the ban is known without Redis", func() bool {
				w := far.current.Load().routes[0].Windows[0]
				in, err := far.admitter.Fallback.Local.Inspect(t.Context(), []limiter.Claim{{Limit: &w.Limit, Key: limiter.KeyOf("header:X-User", "b"), Cost: 1}})
				return err == nil && in.Statuses[0].BannedFor > 59*time.Minute
			})
			await.Until(far.TB, "and by what far counts by itself", func() bool {
				return !far.stands("header:X-User=b", "@own")["own.l"].BannedUntil.IsZero()
			})
			far.sends(429, "GET", "/all", "X-User: b")
			far.sends(429, "GET", "/own", "X-User: b")
			near.changes(view.KeyChange{Action: view.KeyUnban}, "header:X-User=b")
			await.Until(far.TB, "the ban is over", func() bool {
				return far.send("GET", "/all", "X-User: b").Code == 200 && far.send("GET", "/own", "X-User: b").Code == 200
			})
		})
	}
}

// Without Redis a change is made where it is asked for, and says so; a limit that does
// not count there is left out.
func TestChange_WithoutRedis(t *testing.T) {
	const file = `
routes:
  - {name: a, match: {path: /a}, respond: {body: ok}, limits: [{name: l, key: 'header:X-User', rate: 4/1h}]}
  - {name: b, match: {path: /b}, respond: {body: ok}, limits: [{name: l, key: 'header:X-User', rate: 4/1h, on_store_failure: deny}]}
`
	server := redistest.Start(t)
	near, _ := nodes(t, file, redisstore.ClientConfig{Addrs: []string{server.Addr}})
	near.sends(200, "GET", "/a", "X-User: a")
	server.Kill()
	await.Until(near.TB, "its share is used up", func() bool { return near.send("GET", "/a", "X-User: a").Code == 429 })
	all := near.stands("header:X-User=a")
	if got := all["a.l"]; got.Store != "local" || got.Windows[0].Used != 2 || got.Windows[0].Most != 2 {
		t.Errorf("%+v; want this node's share, used up", got)
	}
	if got := all["b.l"]; got.Unknown == "" || len(got.Windows) != 0 {
		t.Errorf("%+v; want that nobody can be asked", got)
	}
	r := near.changes(view.KeyChange{Action: view.KeyReset}, "header:X-User=a")
	if r.Everywhere || !r.Later || len(r.Changed) != 2 || len(r.Notes) == 0 || r.Where() != "on this node now, on all nodes when redis is back" {
		t.Errorf("%+v; want both limits, the one that this node decides now", r)
	}
	near.sends(200, "GET", "/a", "X-User: a")
	r = near.changes(view.KeyChange{Action: view.KeyBan, For: view.Span(time.Hour)}, "header:X-User=a", "@b")
	if r.Where() != "on all nodes when redis is back" {
		t.Errorf("%+v; want that it waits", r)
	}
}

// What is changed while Redis is away is changed in it when it is back, in order, as long as it would last; the
// limits are those that are configured then.
func TestApplyDeferred(t *testing.T) {
	near := newCutNode(t, "rate: 4/1h, on_store_failure: deny")
	for _, user := range []string{"reset", "granted"} {
		near.sendsAll(times(3, 200), "GET", "/a", "X-User: "+user)
	}
	near.leave()
	ban := view.KeyChange{Action: view.KeyBan, For: view.Span(time.Hour)}
	near.changes(ban, "header:X-User=banned")
	near.changes(ban, "header:X-User=unbanned")
	near.changes(view.KeyChange{Action: view.KeyUnban}, "header:X-User=unbanned")
	near.changes(view.KeyChange{Action: view.KeyReset}, "header:X-User=reset")
	near.changes(view.KeyChange{Action: view.KeyGrant, Permits: 2}, "header:X-User=granted")
	near.changes(view.KeyChange{Action: view.KeyBan, For: view.Span(time.Millisecond)}, "header:X-User=short")
	near.ApplyDeferred(t.Context())
	if n := len(near.deferred.waiting); n != 6 {
		t.Fatalf("%d changes wait, want 6", n)
	}
	near.comeBack()
	near.applies()
	left := near.stands("header:X-User=banned")["a.l"].BannedUntil
	if rest := time.Until(left); rest < 58*time.Minute || rest > time.Hour {
		t.Errorf("banned for %v, want what is left of an hour", rest)
	}
	for user, used := range map[string]int64{"unbanned": 0, "short": 0, "reset": 0, "granted": 1} {
		if l := near.stands("header:X-User=" + user)["a.l"]; !l.BannedUntil.IsZero() || l.Windows[0].Used != used {
			t.Errorf("%s: %+v; want no ban, and %d used", user, l, used)
		}
	}
}

// A grant says what it has given back.
func TestChange_GrantedIsWhatWasUsed(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w := newProxy(t, operatedConfig, use)
		w.sends(200, "POST", "/send", phoneLine)
		for _, want := range []int64{1, 0} {
			if r := w.changes(view.KeyChange{Action: view.KeyGrant, Permits: 5}, "phone=+8613800138000", "%phone"); r.Granted() != want || r.Changed[0].Windows[0].Granted != want {
				t.Errorf("%+v; want %d granted", r, want)
			}
		}
	})
}

// A limiter that Java programs share is seen and changed under its name there.
func TestChange_SharedWithJava(t *testing.T) {
	server := redistest.Start(t)
	w, _ := nodes(t, `
keys: {phone: {from: "header:X-Phone", normalize: digits}}
routes:
  - {name: a, match: {path: /a}, respond: {body: ok}, limits: [{name: l, key: phone, rate: 3/1h, redisson_name: "java:{key}"}]}
`, redisstore.ClientConfig{Addrs: []string{server.Addr}})
	w.sendsAll([]int{200, 200, 200, 429}, "GET", "/a", "X-Phone: +1")
	l := w.stands("phone=(+1)")["a.l"]
	if !l.Java || l.Windows[0].Used != 3 || fmt.Sprint(l) == "" || strings.Contains(fmt.Sprint(l), "java:1") {
		t.Errorf("%+v", l)
	}
	w.changes(view.KeyChange{Action: view.KeyReset}, "phone=1")
	w.sends(200, "GET", "/a", "X-Phone: 1")
	if _, err := w.Change(t.Context(), view.KeyChange{Action: view.KeyBan, For: view.Span(time.Hour), KeyQuery: query("phone=1")}); !errors.Is(err, view.ErrKeyQuery) {
		t.Errorf("%v; want that it has no bans", err)
	}
	if got := w.stands("phone=" + w.stands("phone=2")["a.l"].ID)["a.l"]; got.Unknown == "" {
		t.Errorf("%+v; want that an id does not tell the name there", got)
	}
	if got := w.stands("phone=" + l.ID)["a.l"]; got.Unknown != "" || got.Windows[0].Used != 1 {
		t.Errorf("%+v; want the key of the last request", got)
	}
}

// A network that is banned is denied, on all routes or on one, and a route under maintenance answers 503 with the time
// that is left; both end by themselves.
func TestDirectives(t *testing.T) {
	w := newProxy(t, `
client_ip: {trusted_proxies: [0.0.0.0/0], header: X-Real-Ip}
keys: {addr: client_ip}
routes:
  - {name: a, match: {path: /a}, respond: {body: ok}, limits: [{name: l, key: addr, rate: 90/1h}]}
  - {name: b, match: {path: /b}, respond: {body: ok}}
`)
	hour, inside, outside := time.Now().Add(time.Hour), "X-Real-Ip: 203.0.113.7", "X-Real-Ip: 203.0.113.77"
	ban := directive.Directive{Network: netip.MustParsePrefix("203.0.113.0/26"), Until: hour, Who: "anna"}
	w.SetDirectives(directive.NewSet([]directive.Directive{ban, {Network: netip.MustParsePrefix("2001:db8::/32"), Route: "a", Until: hour}}, time.Now()))
	for _, path := range []string{"/a", "/b"} {
		w.sends(403, "GET", path, inside)
		w.sends(200, "GET", path, outside)
	}
	w.sends(403, "GET", "/a", "X-Real-Ip: 2001:db8:1::1")
	w.sends(200, "GET", "/b", "X-Real-Ip: 2001:db8:1::1")
	for name, want := range map[string]int{"addr=203.0.113.7": 1, "addr=203.0.113.77": 0, "client_ip=203.0.113.0/24": 1, "addr=198.51.100.0/24": 0, "addr=2001:db8::1": 1} {
		if s, err := w.standing(name); err != nil || len(s.Networks) != want {
			t.Errorf("%s: %+v, %v; want %d bans", name, s, err, want)
		}
	}
	for text, want := range map[string]string{"addr=203.0.113.0/26": "203.0.113.0/26", "ip=203.0.113.9/26": "203.0.113.0/26", "client_ip=2001:db8:1::/48": "2001:db8:1::/48"} {
		if got, named, err := w.NetworkOf(query(text)); err != nil || !named || got.String() != want {
			t.Errorf("%s: %v, %t, %v; want %s", text, got, named, err, want)
		}
	}
	for _, pairs := range [][]string{{"addr=203.0.113.0/33"}, {"addr=0.0.0.0/0"}, {"addr=a/b"}, {"addr=::ffff:203.0.113.0/120"}, {"addr=203.0.113.0/26", "%l"}} {
		if _, named, err := w.NetworkOf(query(pairs...)); !named || !errors.Is(err, view.ErrKeyQuery) {
			t.Errorf("%v: %t, %v; want ErrKeyQuery", pairs, named, err)
		}
	}
	if _, named, _ := w.NetworkOf(query("addr=2001:db8::/64")); named {
		t.Error("a network that counts as one client is none of its own")
	}
	w.SetDirectives(directive.NewSet([]directive.Directive{{Route: "b", Until: hour}}, time.Now()))
	w.sends(200, "GET", "/a", inside)
	r := w.send("GET", "/b", inside)
	after, err := strconv.Atoi(r.Header().Get("Retry-After"))
	if r.Code != 503 || err != nil || after < 3500 || after > 3600 || !strings.Contains(r.Body.String(), "Under Maintenance") {
		t.Errorf("under maintenance: %d %v %s; want 503 and an hour", r.Code, r.Header(), r.Body)
	}
	if e := w.explains("GET", "/b"); e.Answer == nil || e.Answer.Status != 503 {
		t.Errorf("explain: %+v; want 503", e.Answer)
	}
	w.SetDirectives(directive.NewSet([]directive.Directive{{Until: time.Now().Add(time.Millisecond)}}, time.Now()))
	await.Until(t, "maintenance of all routes is over", func() bool { return w.send("GET", "/b").Code == 200 })
}
