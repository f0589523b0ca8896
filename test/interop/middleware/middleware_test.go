// Package middleware tests that package httplimit works in web frameworks.
package middleware

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/httplimit"
)

// newLimit allows one request an hour to each phone number; failures do not count.
func newLimit(t *testing.T) *httplimit.Limiter {
	t.Helper()
	l, err := httplimit.New(limiter.NewMemory(limiter.MemoryOptions{}),
		httplimit.Options{Refund: func(status int) bool { return status >= 500 }},
		httplimit.Rule{Name: "phone", Rates: []string{"1/1h"}, Key: httplimit.Header("X-Phone")})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// wantStatuses sends a request that fails and returns its permit, one that passes, and one that
// is refused.
func wantStatuses(t *testing.T, h http.Handler) {
	t.Helper()
	s := httptest.NewServer(h)
	defer s.Close()
	for _, c := range []struct {
		path string
		want int
	}{{"/fail", 500}, {"/fail", 500}, {"/send", 200}, {"/send", 429}} {
		r, _ := http.NewRequest("GET", s.URL+c.path, nil)
		r.Header.Set("X-Phone", "1")
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != c.want || response.Header.Get("RateLimit-Policy") == "" {
			t.Errorf("%s: %d %v; want %d with RateLimit-Policy", c.path, response.StatusCode, response.Header, c.want)
		}
	}
}

// Gin's handlers write to gin's own writer, so that the limit stands in front of the router.
func TestGin(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.GET("/send", func(c *gin.Context) { c.String(200, "sent") })
	router.GET("/fail", func(c *gin.Context) { c.String(500, "not sent") })
	wantStatuses(t, newLimit(t).Handler(router))
}

func TestEcho(t *testing.T) {
	router := echo.New()
	router.Use(echo.WrapMiddleware(newLimit(t).Handler))
	router.GET("/send", func(c echo.Context) error { return c.String(200, "sent") })
	router.GET("/fail", func(c echo.Context) error { return c.String(500, "not sent") })
	wantStatuses(t, router)
}
