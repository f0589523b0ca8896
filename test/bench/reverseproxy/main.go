// Command reverseproxy is what somebody would write who needs a proxy with limits and
// has Go: httputil's proxy over a transport that keeps enough connections, with x/time's
// limiter for each key in memory or redis_rate in Redis. It is measured beside weir.
//
//	reverseproxy -listen 127.0.0.1:8080 -to http://127.0.0.1:8000 -store redis -redis 127.0.0.1:6379 -limit 100
package main

import (
	"flag"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "where clients connect")
	to := flag.String("to", "", "the upstream, as a URL")
	store := flag.String("store", "memory", "memory or redis")
	address := flag.String("redis", "127.0.0.1:6379", "where Redis is")
	limit := flag.Int("limit", 0, "requests a second for each X-Api-Key; 0 is no limit")
	flag.Parse()
	upstream, err := url.Parse(*to)
	if err != nil || upstream.Host == "" {
		log.Fatalf("-to %q is no URL", *to)
	}
	allows := unlimited
	switch {
	case *limit == 0:
	case *store == "redis":
		allows = inRedis(redis.NewClient(&redis.Options{Addr: *address}), *limit)
	default:
		allows = inMemory(*limit)
	}
	log.Fatal(http.ListenAndServe(*listen, limited(proxy(upstream), allows)))
}

// proxy forwards to upstream over connections that it keeps.
func proxy(upstream *url.URL) http.Handler {
	transport := &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true}
	return &httputil.ReverseProxy{
		Transport:  transport,
		BufferPool: &buffers{sync.Pool{New: func() any { return new([32 << 10]byte) }}},
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(upstream)
			r.SetXForwarded()
		},
	}
}

// A decider says whether a request may pass.
type decider func(r *http.Request) bool

func unlimited(*http.Request) bool { return true }

func limited(next http.Handler, allows decider) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !allows(r) {
			http.Error(w, "too many requests", http.StatusTooManyRequests)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// inMemory keeps a limiter for each key, for ever.
func inMemory(limit int) decider {
	var limiters sync.Map
	return func(r *http.Request) bool {
		key := r.Header.Get("X-Api-Key")
		l, ok := limiters.Load(key)
		if !ok {
			l, _ = limiters.LoadOrStore(key, rate.NewLimiter(rate.Limit(limit), limit))
		}
		return l.(*rate.Limiter).Allow()
	}
}

// inRedis asks Redis by one script for each request. It lets nobody pass when that fails.
func inRedis(client *redis.Client, limit int) decider {
	limiter := redis_rate.NewLimiter(client)
	return func(r *http.Request) bool {
		result, err := limiter.Allow(r.Context(), r.Header.Get("X-Api-Key"), redis_rate.PerSecond(limit))
		return err == nil && result.Allowed > 0
	}
}

// buffers lends httputil what it copies bodies through.
type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte { return b.pool.Get().(*[32 << 10]byte)[:] }

func (b *buffers) Put(p []byte) { b.pool.Put((*[32 << 10]byte)(p)) }
