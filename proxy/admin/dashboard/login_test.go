package dashboard_test

import (
	"bufio"
	"context"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/admin/dashboard"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/view"
)

func TestLogin_WithoutTokenThePagesAreOpen(t *testing.T) {
	b := open(t, options())
	b.get("/").shows(t, http.StatusOK, "Overview")
	b.get("/dashboard/login").shows(t, http.StatusOK, "Overview") // sent on
}

func TestLogin_NothingIsShownBefore(t *testing.T) {
	o := options()
	o.Token = token
	b := open(t, o)
	for _, path := range []string{"/", "/dashboard/routes", "/dashboard/keys", "/dashboard/explain", "/dashboard/nodes", "/dashboard/config", "/dashboard/series", "/dashboard/nothing"} {
		p := b.get(path)
		p.shows(t, http.StatusOK, "Admin token")
		if p.Request.URL.Path != "/dashboard/login" || strings.Contains(p.text, "sms") {
			t.Errorf("%s: got %s", path, p.Request.URL.Path)
		}
	}
	b.post("/dashboard/keys/change", url.Values{"key": {"phone"}}).shows(t, http.StatusOK, "Admin token")
}

func TestLogin_LetsInWhoKnowsTheToken(t *testing.T) {
	o := options()
	o.Token = token
	b := open(t, o)
	b.login("another-token-altogether").shows(t, http.StatusUnauthorized, "Invalid token")
	b.get("/").shows(t, http.StatusOK, "Admin token")
	b.login(token).shows(t, http.StatusOK, "Overview", "Log out")
	b.get("/dashboard/nodes").shows(t, http.StatusOK, "node-b")
	b.post("/dashboard/logout", fields()).shows(t, http.StatusOK, "Admin token")
	b.get("/").shows(t, http.StatusOK, "Admin token")
}

func TestLogin_GoesOnToThePageThatWasWanted(t *testing.T) {
	o := options()
	o.Token = token
	b := open(t, o)
	form := fields("token", token, "then", "/dashboard/nodes")
	if p := b.post("/dashboard/login", form); p.Request.URL.Path != "/dashboard/nodes" {
		t.Errorf("got %s, want /dashboard/nodes", p.Request.URL.Path)
	}
	for _, then := range []string{"https://example.com/", "//example.com/", "/reload"} {
		b := open(t, o)
		if p := b.post("/dashboard/login", fields("token", token, "then", then)); p.Request.URL.String() != b.at+"/" {
			t.Errorf("then %s: got %s, want /", then, p.Request.URL)
		}
	}
}

// cookies are those that a login over this request's connection sets.
func cookies(t *testing.T, prepare func(*http.Request)) []*http.Cookie {
	t.Helper()
	o := options()
	o.Token = token
	h := dashboard.New(o)
	r := httptest.NewRequest(http.MethodPost, "http://weir.example:9090/dashboard/login", strings.NewReader(fields("token", token).Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for _, name := range []string{"weir-session-9090", "__Host-weir-session-9090"} {
		r.AddCookie(&http.Cookie{Name: name, Value: "planted"})
	}
	prepare(r)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusSeeOther {
		t.Fatalf("got status %d", w.Code)
	}
	return w.Result().Cookies()
}

func TestLogin_CookieIsForThisHostAlone(t *testing.T) {
	all := cookies(t, func(r *http.Request) { r.TLS = nil })
	secure := cookies(t, func(r *http.Request) {
		tls := httptest.NewRequest(http.MethodGet, "https://weir.example/", nil)
		r.TLS = tls.TLS
	})
	if len(all) != 1 || len(secure) != 1 {
		t.Fatalf("got %d and %d cookies, want one each", len(all), len(secure))
	}
	for i, c := range append(all, secure...) {
		if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" || c.MaxAge != 12*3600 {
			t.Errorf("got %s", c)
		}
		name, overTLS := "weir-session-9090", i == 1
		if overTLS {
			name = "__Host-" + name
		}
		if c.Name != name || c.Secure != overTLS {
			t.Errorf("got %s, want %s", c, name)
		}
		if strings.Contains(c.Value, token) || c.Value == "planted" {
			t.Errorf("got the token, or an id of before the login, in the cookie: %s", c.Value)
		}
	}
}

// A browser says with each form which page has sent it: with Sec-Fetch-Site, or over plain HTTP with Origin alone.
func TestLogin_ForeignPagesSendNothing(t *testing.T) {
	for _, with := range []string{"", token} {
		o := options()
		o.Token = with
		b := open(t, o)
		if with != "" {
			b.login(token).shows(t, http.StatusOK, "Overview")
		}
		for _, path := range []string{"/dashboard/keys", "/dashboard/keys/change", "/dashboard/simulate", "/dashboard/login", "/dashboard/logout"} {
			for _, from := range [][2]string{{"cross-site", "http://a.example"}, {"same-site", "http://localhost:3000"}, {"", "http://127.0.0.1:3000"}, {"", "null"}} {
				r := b.request(http.MethodPost, path, fields("key", "phone", "value", "1", "token", token).Encode())
				r.Header = http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "Sec-Fetch-Site": {from[0]}, "Origin": {from[1]}}
				b.send(r).shows(t, http.StatusForbidden)
			}
		}
		b.get("/").shows(t, http.StatusOK, "Overview")
	}
}

func TestLogin_LivePartSendsTheWholePageToLogin(t *testing.T) {
	o := options()
	o.Token = token
	b := open(t, o)
	r := b.request(http.MethodGet, "/", "")
	r.Header.Set("HX-Request", "true")
	p := b.send(r)
	if p.StatusCode != http.StatusUnauthorized || p.Header.Get("HX-Redirect") != "/dashboard/login" {
		t.Errorf("got %d and %q", p.StatusCode, p.Header.Get("HX-Redirect"))
	}
}

// Wherever a session ends, the login leads back there: with the query of a page, from its live part, and
// from a form of it.
func TestLogin_LeadsBackToThePage(t *testing.T) {
	o := options()
	o.Token = token
	o.Decisions = func(context.Context, view.DecisionQuery) (view.Decisions, error) { return view.Decisions{}, nil }
	for _, c := range []struct{ method, path, header, want string }{
		{http.MethodGet, "/dashboard/decisions?request=r-1&route=a%26b", "", "/dashboard/decisions?request=r-1&route=a%26b"},
		{http.MethodGet, "/?minutes=60", "", "/?minutes=60"},
		{http.MethodGet, "/dashboard/routes?page=2", "HX-Current-URL", "/dashboard/routes?page=2"},
		{http.MethodPost, "/dashboard/keys/change", "Referer", "/dashboard/keys?look=X"},
		{http.MethodPost, "/dashboard/keys/change", "", "/"},
		{http.MethodGet, "/dashboard/nodes", "HX-Request", "/"}, // of which page it is part is not said
	} {
		b := open(t, o)
		b.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		r := b.request(c.method, c.path, "")
		if c.header != "" {
			r.Header.Set(c.header, b.at+c.want)
		}
		if strings.HasPrefix(c.header, "HX-") {
			r.Header.Set("HX-Request", "true")
		}
		p := b.send(r)
		at := p.Header.Get("Location") + p.Header.Get("HX-Redirect")
		if !strings.HasPrefix(at, "/dashboard/login") {
			t.Fatalf("%s %s: led to %q", c.method, c.path, at)
		}
		form := fields("token", token)
		form.Set("then", html.UnescapeString(regexp.MustCompile(`name="then" value="([^"]*)"`).FindStringSubmatch(b.get(at).text)[1]))
		if got := b.post("/dashboard/login", form).Header.Get("Location"); got != c.want {
			t.Errorf("%s %s: after the login came %q, want %q", c.method, c.path, got, c.want)
		}
	}
}

func TestLogin_ReadersChangeNothing(t *testing.T) {
	back := new(admin.Rollback)
	o := options()
	o.Cluster = &pushedHistory{back: back}
	o.Tokens = []config.Token{{Name: "ann", Text: "reads-and-no-more"}, {Name: "bob", Text: "writes-and-rewrites", Write: true}}

	reader := open(t, o)
	reader.login("reads-and-no-more").shows(t, http.StatusOK, "ann (read only)")
	looked := reader.post("/dashboard/keys", fields("key", "phone", "value", "1"))
	looked.shows(t, http.StatusOK, "token is read-only")
	if strings.Contains(looked.text, "/dashboard/keys/change") {
		t.Error("got buttons that change something")
	}
	reader.post("/dashboard/keys/change", fields("key", "phone", "value", "1", "action", "reset")).shows(t, http.StatusForbidden, "role write")
	reader.post("/dashboard/config/rollback", fields("generation", "6")).shows(t, http.StatusForbidden, "role write")
	reader.post("/dashboard/config/push", fields("other", "routes: []", "do", "push")).shows(t, http.StatusForbidden, "role write")
	if back.Generation != 0 {
		t.Error("rolled back all the same")
	}

	writer := open(t, o)
	writer.login("writes-and-rewrites").shows(t, http.StatusOK, "bob")
	writer.post("/dashboard/config/rollback", fields("generation", "6")).shows(t, http.StatusOK, "all nodes serve generation 8, the contents of 6, which was served <time", "07:26:00 UTC</time> to <time")
	if *back != (admin.Rollback{Generation: 6, Author: "bob"}) {
		t.Errorf("got %+v", *back)
	}
	writer.post("/dashboard/config/rollback", fields("generation", "x")).shows(t, http.StatusUnprocessableEntity, "Nothing was changed.")
}

// Wrong tokens of the form and of the API slow the address alike; a session goes on.
func TestLogin_WrongTokensSlowTheirAddress(t *testing.T) {
	o := options()
	o.Token, o.WrongTokens = token, admin.NewWrongTokens(prometheus.NewRegistry())
	b := open(t, o)
	b.login(token).shows(t, http.StatusOK, "Overview")
	other := open(t, o)
	other.login("").shows(t, http.StatusUnauthorized, "Invalid token") // not a guess
	for range 3 {
		other.login("a-token-that-is-wrong").shows(t, http.StatusUnauthorized, "Invalid token")
	}
	for range 2 {
		askAPI(t, b.at, "a-token-that-is-wrong", http.StatusUnauthorized)
	}
	p := other.login(token)
	p.shows(t, http.StatusTooManyRequests, "Too many wrong tokens", "Admin token")
	if after := p.Header.Get("Retry-After"); after != "1" && after != "2" {
		t.Errorf("Retry-After = %q; want 1 or 2", after)
	}
	askAPI(t, b.at, token, http.StatusTooManyRequests)
	b.get("/dashboard/nodes").shows(t, http.StatusOK, "node-b")
}

// askAPI fails unless the API answers a request with that token with that status.
func askAPI(t *testing.T, at, token string, want int) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, at+"/api/v1/nodes", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != want {
		t.Errorf("the API answers %d; want %d", answer.StatusCode, want)
	}
}

// Pages listen to what happens with the session that they were shown in.
func TestEvents_AreForThoseWhoAreLoggedIn(t *testing.T) {
	o := options()
	o.Token = token
	o.Events = admin.NewEvents(func() map[proxy.Series]int64 { return nil })
	b := open(t, o)
	b.get("/dashboard/events").shows(t, http.StatusOK, "Admin token")
	b.login(token).shows(t, http.StatusOK, `data-events="/dashboard/events"`)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.at+"/dashboard/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := b.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if got := answer.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Fatalf("got %s", got)
	}
	o.Events.Publish(admin.Event{Type: admin.EventReload, Generation: 8})
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() && lines.Text() != "" {
		if data, found := strings.CutPrefix(lines.Text(), "data: "); found && strings.Contains(data, `"generation":8`) {
			return
		}
	}
	t.Error("got no event")
}
