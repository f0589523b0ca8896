package cluster

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/weir-proxy/weir/proxy/config"
)

const (
	// webhookTimeout is how long a webhook may take to answer.
	webhookTimeout = 10 * time.Second
	// The fields that an alert is sent with.
	signatureField = "Weir-Signature"
	idField        = "Weir-Alert-Id"
)

// errRejected says that a webhook will not take the alert, however often it is
// sent.
var errRejected = errors.New("webhook refuses")

// A hook sends alerts.
type hook struct{ client *http.Client }

func newHook() *hook {
	return &hook{&http.Client{
		Timeout:       webhookTimeout,
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, ForceAttemptHTTP2: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // what is signed goes to no one else
	}}
}

// post sends a. It is nil once the webhook has answered with 2xx. An error that
// wraps errRejected will not go away by sending it again. None names the URL, which may be
// a secret itself.
func (h *hook) post(ctx context.Context, rules config.Alerts, a Alert) error {
	body, err := json.Marshal(a)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, rules.Webhook, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%w: %w", errRejected, withoutURL(err))
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "weir")
	r.Header.Set(idField, a.ID)
	if rules.Secret != "" {
		r.Header.Set(signatureField, signature(rules.Secret, time.Now(), body))
	}
	answer, err := h.client.Do(r)
	if err != nil {
		return fmt.Errorf("send an alert: %w", withoutURL(err))
	}
	defer answer.Body.Close()
	_, _ = io.CopyN(io.Discard, answer.Body, 64<<10) // what it says does not matter
	return checkStatus(answer.StatusCode)
}

// checkStatus is what a status means for the alert.
func checkStatus(status int) error {
	switch {
	case status >= 200 && status < 300:
		return nil
	case status >= 500, status == http.StatusTooManyRequests, status == http.StatusRequestTimeout, status == http.StatusTooEarly:
		return fmt.Errorf("send an alert: webhook answers %d", status)
	}
	return fmt.Errorf("send an alert: %w: it answers %d", errRejected, status)
}

// signature is t=SECONDS,v1=HEX: when it was made, and the HMAC-SHA256 under the
// secret of these seconds, a dot, and the body.
func signature(secret string, at time.Time, body []byte) string {
	seconds := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(seconds + "."))
	mac.Write(body)
	return "t=" + seconds + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}

// withoutURL is err without the URL that net/http puts before it.
func withoutURL(err error) error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		return u.Err
	}
	return err
}
