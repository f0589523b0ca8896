package trace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

const (
	// minBackoff is the pause after the first failed attempt; it doubles with each
	// further one. maxBackoff is the longest pause that the collector can ask for with
	// Retry-After.
	minBackoff = time.Second
	maxBackoff = 30 * time.Second
	// maxResponse is how much of a response is read.
	maxResponse = 64 << 10
)

// retryableError is an error after which the same spans may be sent again.
type retryableError struct {
	retryAfter time.Duration // from Retry-After; 0 without one
	err        error
}

func (e *retryableError) Error() string { return e.err.Error() }

func (e *retryableError) Unwrap() error { return e.err }

// sendWithRetry sends spans until the collector accepts or rejects them, maxAttempts
// is reached, or ctx is done.
func (e *Exporter) sendWithRetry(ctx context.Context, spans []*Span) {
	// A TracesData has the same encoding as an ExportTraceServiceRequest.
	body, err := proto.Marshal(e.data(spans))
	pause := minBackoff
	for attempt := 1; err == nil; attempt++ {
		var refused int
		refused, err = e.send(ctx, body)
		if err == nil {
			e.count("sent", len(spans)-refused)
			e.count("failed", refused)
			return
		}
		var later *retryableError
		if !errors.As(err, &later) || attempt == maxAttempts {
			break
		}
		wait := max(min(later.retryAfter, maxBackoff), pause/2+rand.N(pause/2)) // jitter
		pause = min(2*pause, maxBackoff)
		err = sleep(ctx, wait)
	}
	e.count("failed", len(spans))
}

// sleep waits for d or until ctx is done.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// send sends a message, and returns how many of its spans the collector rejected.
func (e *Exporter) send(ctx context.Context, body []byte) (refused int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.options.Endpoint, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	for name, value := range e.options.Headers {
		r.Header.Set(name, value)
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	r.Header.Set("User-Agent", "weir/"+e.options.Version)
	res, err := e.options.Client.Do(r)
	if err != nil {
		return 0, &retryableError{0, err}
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxResponse))
	switch {
	case res.StatusCode == http.StatusTooManyRequests, res.StatusCode >= 502 && res.StatusCode <= 504:
		seconds, _ := strconv.Atoi(res.Header.Get("Retry-After"))
		return 0, &retryableError{time.Duration(max(seconds, 0)) * time.Second, fmt.Errorf("collector answers %s", res.Status)}
	case res.StatusCode < 200 || res.StatusCode > 299:
		return 0, fmt.Errorf("collector answers %s", res.Status)
	case err != nil:
		return 0, nil // accepted, although the details are unreadable
	}
	return rejected(answer), nil
}

// rejected returns the number of rejected spans in an ExportTraceServiceResponse: field
// 1 of its field 1.
func rejected(answer []byte) int {
	partial, _ := protowire.ConsumeBytes(field(answer, protowire.BytesType))
	n, length := protowire.ConsumeVarint(field(partial, protowire.VarintType))
	if length < 0 || n > batchSize {
		return 0
	}
	return int(n)
}

// field returns the value of field 1 if it has this wire type, else nil.
func field(message []byte, is protowire.Type) []byte {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil
		}
		message = message[n:]
		if number == 1 && kind == is {
			return message
		}
		if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
			return nil
		}
		message = message[n:]
	}
	return nil
}
