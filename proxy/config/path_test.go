package config

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
)

func TestParsePath(t *testing.T) {
	tests := []struct {
		text, want, shape string
		params            []string
	}{
		{"/", "/", "/", nil},
		{"/*", "/*", "/*", []string{"*"}},
		{"/a/b", "/a/b", "/a/b", nil},
		{"/a/", "/a/", "/a/", nil},
		{"/a/*", "/a/*", "/a/*", []string{"*"}},
		{"/a/{x}", "/a/{x}", "/a/{}", []string{"x"}},
		{"/{x}/{y_1}/*", "/{x}/{y_1}/*", "/{}/{}/*", []string{"x", "y_1", "*"}},
		{"/{x:[0-9]+}", "/{x:^(?:[0-9]+)$}", "/{^(?:[0-9]+)$}", []string{"x"}},
		{"/{x:a|b}/c", "/{x:^(?:a|b)$}/c", "/{^(?:a|b)$}/c", []string{"x"}},
		{"/{x:[^/]{2}}/c", "/{x:^(?:[^/]{2})$}/c", "/{^(?:[^/]{2})$}/c", []string{"x"}},
		{"/{x:a*:b}", "/{x:^(?:a*:b)$}", "/{^(?:a*:b)$}", []string{"x"}},
		{"/é/a b/a%2eb%41%40", "/%C3%A9/a%20b/a.bA@", "/%C3%A9/a%20b/a.bA@", nil},
		{"/a;b%3bc", "/a;b%3Bc", "/a;b%3Bc", nil},
		{"/%c3%a9%25%20", "/%C3%A9%25%20", "/%C3%A9%25%20", nil},
		{"/%C3%A9~.-_:@!$&'()+,;=", "/%C3%A9~.-_:@!$&'()+,;=", "/%C3%A9~.-_:@!$&'()+,;=", nil},
	}
	for _, tt := range tests {
		p, f := parsePath(tt.text)
		if f != (fault{}) || p.text != tt.want || p.shape != tt.shape || !slices.Equal(p.params, tt.params) {
			t.Errorf("%s: got %+v, %+v", tt.text, p, f)
		}
	}
}

// TestParsePath_ParameterMatchesWhole: the router itself would read ^a|b$ as
// "begins with a, or ends with b".
func TestParsePath_ParameterMatchesWhole(t *testing.T) {
	router := routerOf(t, "/{x:a|b}")
	for path, want := range map[string]bool{"/a": true, "/b": true, "/ax": false, "/xb": false, "/": false} {
		if got := router.Match(chi.NewRouteContext(), http.MethodGet, path); got != want {
			t.Errorf("%s: got %v, want %v", path, got, want)
		}
	}
}

// routerOf is a router of the paths, which must be good.
func routerOf(t *testing.T, paths ...string) *chi.Mux {
	t.Helper()
	router := chi.NewMux()
	for _, text := range paths {
		p, f := parsePath(text)
		if f != (fault{}) {
			t.Fatalf("%s: %+v", text, f)
		}
		router.Handle(p.text, http.NotFoundHandler())
	}
	return router
}

// FuzzParsePath: what is let through never makes the router panic, alone or
// beside others, and what it is spelled as stays so.
func FuzzParsePath(f *testing.F) {
	for _, s := range []string{"/", "/*", "/a/{x}", "/{x:[0-9]+}/*", "/{x:a{2}}", "/{x:}}", "/{x:\\{}", "/%41", "/a/../b", "/{x", "/é", "/{x:(?i)a}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, f := parsePath(text)
		if f != (fault{}) {
			return
		}
		if again, f := parsePath(p.text); len(p.params) == 0 && (f != fault{} || again.text != p.text) {
			t.Errorf("%q is spelled %q and then %q, %v", text, p.text, again.text, f)
		}
		router := routerOf(t, text, "/a/{id}", "/{id:[a-z]+}/b", "/*", text)
		router.Match(chi.NewRouteContext(), http.MethodGet, text)
	})
}

// What is written in the notation of a regexp, of another router or as a URL is answered with the path that is meant.
func TestPath_InOtherNotations(t *testing.T) {
	for text, want := range map[string]string{
		`^/v1/.*$`: "write /v1/*", `~ ^/v1/users`: "write /v1/users", `^/v1/(\d+)/x$`: `write /v1/{name:(\d+)}/x`, `^/v1/[^/]+/x`: "write /v1/{name}/x",
		`v1/a`: "write /v1/a", `users/:id`: "write /users/{id}", `users/<int:id>`: "write /users/{id}", `=/a`: "write /a",
		`https://api.example.com/v1`: "write path: /v1, and host: api.example.com beside it", `^(`: "write for example /v1/users, /v1/* or /v1/{name}",
	} {
		if _, f := parsePath(text); f.what != "does not begin with /" || f.instead != want {
			t.Errorf("%s: %q; want %q", text, f, want)
		}
	}
	for text, want := range map[string]string{
		`/users/:id`: "write /users/{id}", `/users/<id>/x`: "write /users/{id}/x", `/v1/(.+)`: "write /v1/*", `/v1/[^/]+/x`: "write /v1/{name}/x", `/{id:[^/]+}`: "", `/v1/.+`: "write /v1/*",
		`/v1/messages:send`: "", `/Products(1)`: "", `/$metadata`: "", `/a+b/c.d`: "", `/{id:[0-9]+}`: "", `/v1/*`: "", `/`: "", `/:`: "",
	} {
		var c Config
		if got := foreignPath(text); got != want {
			t.Errorf("%s: %q; want %q", text, got, want)
		} else if c = *mustParse(t, "routes: [{name: a, match: {path: '"+strings.ReplaceAll(text, "$", "$$")+"'}, upstream: echo}, {name: all, match: {path: /*}, upstream: echo}]\n"); (len(c.Warnings) > 0) != (want != "") {
			t.Errorf("%s: warns %v", text, c.Warnings)
		}
	}
}
