package frontend

import (
	"crypto/x509"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// An expiryCollector exports the expiry time of each certificate; if there are several
// for one name, that of the first one to expire. The label is a name in a certificate
// of this server, so that the number of its values is bounded.
type expiryCollector struct {
	certificates *Certificates
	desc         *prometheus.Desc
}

// Expiry returns a collector for the expiry times of the certificates.
func (c *Certificates) Expiry() prometheus.Collector {
	return expiryCollector{c, prometheus.NewDesc("weir_certificate_expiry_timestamp_seconds",
		"When the certificate for a name ends, in seconds since 1970.", []string{"name"}, nil)}
}

// Describe implements prometheus.Collector.
func (e expiryCollector) Describe(to chan<- *prometheus.Desc) { to <- e.desc }

// Collect implements prometheus.Collector.
func (e expiryCollector) Collect(to chan<- prometheus.Metric) {
	ends := map[string]time.Time{}
	for _, c := range e.certificates.all() {
		name := c.Subject.CommonName
		if len(c.DNSNames) > 0 {
			name = c.DNSNames[0]
		}
		if end, ok := ends[name]; !ok || c.NotAfter.Before(end) {
			ends[name] = c.NotAfter
		}
	}
	for name, end := range ends {
		to <- prometheus.MustNewConstMetric(e.desc, prometheus.GaugeValue, float64(end.Unix()), name)
	}
}

// all returns all current certificates.
func (c *Certificates) all() []*x509.Certificate {
	var all []*x509.Certificate
	for _, pair := range c.current.Load().Certificates {
		all = append(all, pair.Leaf)
	}
	if c.issuer != nil {
		all = append(all, c.issuer.Certificates()...)
	}
	return all
}
