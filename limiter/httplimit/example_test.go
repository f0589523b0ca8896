package httplimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/httplimit"
)

// One code a minute to each phone number; a code that was not sent does not count.
func Example() {
	store := limiter.NewMemory(limiter.MemoryOptions{})
	limit, err := httplimit.New(store, httplimit.Options{Refund: func(status int) bool { return status >= 500 }},
		httplimit.Rule{Name: "phone", Rates: []string{"1/1m", "10/1d"}, Key: httplimit.Header("X-Phone")})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("POST /send", limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "sent") })))

	for range 2 {
		r := httptest.NewRequest("POST", "/send", nil)
		r.Header.Set("X-Phone", "+8613800138000")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get("RateLimit"))
	}
	// Output:
	// 200 "phone-1m";r=0;t=60, "phone-1d";r=9
	// 429 "phone-1m";r=0;t=60, "phone-1d";r=9
}
