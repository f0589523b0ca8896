package cluster

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
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
	// webhookTimeout bounds a request to the webhook.
	webhookTimeout = 10 * time.Second
	// The header fields of an alert.
	signatureField = "Weir-Signature"
	idField        = "Weir-Alert-Id"
)

// errWebhookRefused reports that the webhook refused the alert permanently.
var errWebhookRefused = errors.New("webhook refused")

// A webhook sends alerts.
type webhook struct{ client *http.Client }

func newWebhook() *webhook {
	return &webhook{&http.Client{
		Timeout:       webhookTimeout,
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, ForceAttemptHTTP2: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // do not send a signed message elsewhere
	}}
}

// post sends a. It returns nil if the webhook returned with 2xx. An error that wraps
// errWebhookRefused must not be retried. Errors do not contain the URL, which may be secret.
func (w *webhook) post(ctx context.Context, rules config.Alerts, a Alert) error {
	body := encode(a)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, rules.Webhook, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%w: %w", errWebhookRefused, withoutURL(err))
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "weir")
	r.Header.Set(idField, a.ID)
	if rules.Secret != "" {
		r.Header.Set(signatureField, signature(rules.Secret, time.Now(), body))
	}
	answer, err := w.client.Do(r)
	if err != nil {
		return fmt.Errorf("send an alert: %w", withoutURL(err))
	}
	defer answer.Body.Close()
	_, _ = io.CopyN(io.Discard, answer.Body, 64<<10) // the body is ignored
	return checkStatus(answer.StatusCode)
}

// checkStatus returns the error for a response status.
func checkStatus(status int) error {
	switch {
	case status >= 200 && status < 300:
		return nil
	case status >= 500, status == http.StatusTooManyRequests, status == http.StatusRequestTimeout, status == http.StatusTooEarly:
		return fmt.Errorf("send an alert: webhook returned %d", status)
	}
	return fmt.Errorf("send an alert: %w: it answers %d", errWebhookRefused, status)
}

// signature returns t=SECONDS,v1=HEX: the time, and the HMAC-SHA256 of these
// seconds, a dot, and the body.
func signature(secret string, at time.Time, body []byte) string {
	seconds := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(seconds + "."))
	mac.Write(body)
	return "t=" + seconds + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}

// withoutURL removes the URL that net/http adds to err.
func withoutURL(err error) error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		return u.Err
	}
	return err
}
