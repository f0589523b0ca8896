package convert

import (
	"fmt"
	"time"
)

// rates returns the rates of a plugin and the algorithm that counts them as Kong does.
func (c *kongConfig) rates(config node) (rates []string, algorithm string, err error) {
	for _, w := range []struct{ name, window string }{{"second", "1s"}, {"minute", "1m"}, {"hour", "1h"}, {"day", "1d"}, {"month", "30d"}, {"year", "365d"}} {
		at := config.get(w.name)
		n, err := c.number(at)
		if err != nil {
			return nil, "", err
		}
		if n == 0 {
			continue
		}
		if w.name == "month" || w.name == "year" {
			c.note(at.line(), "a "+w.name+" of the calendar is not carried over", "it is "+w.window+" here")
		}
		rates = append(rates, fmt.Sprintf("%d/%s", n, w.window))
	}
	sizes := config.get("window_size").items()
	for i, at := range config.get("limit").items() {
		n, err := c.number(at)
		if err != nil {
			return nil, "", err
		}
		if i >= len(sizes) {
			return nil, "", c.wrong(at.line(), "the limit has no window", "expected window_size with as many numbers as limit")
		}
		seconds, err := c.number(sizes[i])
		if err != nil {
			return nil, "", err
		}
		if n > 0 && seconds > 0 {
			rates = append(rates, fmt.Sprintf("%d/%s", n, windowName(time.Duration(seconds)*time.Second)))
		}
	}
	if len(sizes) > 0 && config.get("window_type").text() != "fixed" {
		return rates, "sliding_window", nil
	}
	return rates, "fixed_window", nil
}

// shared writes the Redis in which Kong counts.
func (c *kongConfig) shared(config node) {
	for _, f := range c.sections {
		if f.name == "store" {
			return
		}
	}
	host, port := config.get("redis", "host"), config.get("redis", "port").text()
	if !host.isThere() {
		host, port = config.get("redis_host"), config.get("redis_port").text()
	}
	c.sections.set("store", "redis")
	if host.text() == "" {
		c.note(config.line(), "Kong counts in its database", "write redis: {addrs: [HOST:PORT]}")
		return
	}
	if port == "" {
		port = "6379"
	}
	c.sections.set("redis", mapping{{"addrs", texts([]string{host.text() + ":" + port})}}.flow())
}
