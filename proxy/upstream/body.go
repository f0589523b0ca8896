package upstream

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"golang.org/x/net/http/httpguts"
)

// A requestBody is the client's body on its way to the target. It is read by
// net/http's own goroutine, which is why what it notes is atomic.
type requestBody struct {
	io.ReadCloser
	from, to http.Header // trailers: filled by the server at the end, and to be sent

	failure atomic.Pointer[error] // what went wrong when reading from the client
	whole   atomic.Bool           // all of it has been read
}

func (b *requestBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch err {
	case nil:
	case io.EOF:
		for name := range b.to {
			b.to[name] = b.from[name]
		}
		b.whole.Store(true)
	default:
		b.failure.CompareAndSwap(nil, &err)
	}
	return n, err
}

// Stop implements stopper.
func (b *requestBody) Stop() { stop(b.ReadCloser) }

// err is why the client's body could not be read, nil if it could be so far.
func (b *requestBody) err() error {
	if b == nil {
		return nil
	}
	if err := b.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// unread reports whether some of the body has still to come from the client.
func (b *requestBody) unread() bool { return b != nil && !b.whole.Load() }

// trailers makes room for those trailers of in that may be forwarded; their
// values come with the end of the body. Trailers that the client did not
// announce are dropped, as RFC 9110 6.5.1 allows, and so are those of names that
// are kept for the header; see mayFollow.
func trailers(in *http.Request, t *Request) http.Header {
	if len(in.Trailer) == 0 {
		return nil
	}
	out := make(http.Header, len(in.Trailer))
	for name := range in.Trailer {
		if mayFollow(name, t) && !httpguts.HeaderValuesContainsToken(in.Header["Connection"], name) {
			out[name] = nil
		}
	}
	return out
}

// mayTrail reports whether the field called name may come after a body: not if it
// says how to frame, route or judge a message, or who the client is.
func mayTrail(name string) bool {
	switch name {
	case "Upgrade", "Forwarded", "X-Real-Ip", "Via", "Cookie", "Set-Cookie", "Ratelimit", "Ratelimit-Policy":
		return false
	}
	return httpguts.ValidTrailerHeader(name) && !strings.HasPrefix(name, "X-Forwarded-")
}

// mayFollow reports whether the trailer field called name, in canonical form, is sent
// to the target: not if mayTrail objects, if Weir or its operator speaks for it, or
// if something was decided by it.
func mayFollow(name string, t *Request) bool {
	bare := http.CanonicalHeaderKey(hyphenated(name)) // see disowned
	return mayTrail(bare) && !ours(bare, t) && t.Set[name] == nil && (t.Reserved == nil || !t.Reserved(name))
}
