// Does the tasks of secured_clients/programs.py by franz-go.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const timeout = 180 * time.Second

type task struct {
	Bootstrap   string `json:"bootstrap"`
	Authority   string `json:"authority"`
	Mechanism   string `json:"mechanism"`
	User        string `json:"user"`
	Password    string `json:"password"`
	IsDelegated bool   `json:"is_delegated"`
	Token       string `json:"token"`
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
	Topic       string `json:"topic"`
	Records     int    `json:"records"`
	PauseMs     int    `json:"pause_ms"`
}

type answer struct {
	Values  []string `json:"values,omitempty"`
	Refused string   `json:"refused,omitempty"`
}

func main() {
	tasks, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var next task
		if tasks.Decode(&next) != nil {
			return
		}
		if answers.Encode(next.answer()) != nil {
			return
		}
	}
}

func (t task) answer() answer {
	values, err := t.do()
	if err != nil {
		return answer{Refused: err.Error()}
	}
	return answer{Values: values}
}

func (t task) do() ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := t.produce(ctx); err != nil {
		return nil, err
	}
	return t.consume(ctx)
}

func (t task) produce(ctx context.Context) error {
	client, err := t.client(kgo.AllowAutoTopicCreation(), kgo.ProducerLinger(0))
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.Ping(ctx); err != nil {
		return err
	}
	for number := range t.Records {
		record := &kgo.Record{Topic: t.Topic, Value: []byte(strconv.Itoa(number))}
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			return err
		}
		time.Sleep(time.Duration(t.PauseMs) * time.Millisecond)
	}
	return nil
}

func (t task) consume(ctx context.Context) ([]string, error) {
	client, err := t.client(
		kgo.ConsumerGroup(t.Topic),
		kgo.ConsumeTopics(t.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var values []string
	for len(values) < t.Records {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(record *kgo.Record) { values = append(values, string(record.Value)) })
	}
	return values, nil
}

func (t task) client(options ...kgo.Opt) (*kgo.Client, error) {
	config, err := t.tls()
	if err != nil {
		return nil, err
	}
	options = append(options, kgo.SeedBrokers(t.Bootstrap), kgo.DialTLSConfig(config))
	if t.Mechanism != "" {
		options = append(options, kgo.SASL(t.sasl()))
	}
	return kgo.NewClient(options...)
}

func (t task) tls() (*tls.Config, error) {
	authority, err := os.ReadFile(t.Authority)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(authority)
	if t.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(t.Certificate, t.Key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func (t task) sasl() sasl.Mechanism {
	switch login := (scram.Auth{User: t.User, Pass: t.Password, IsToken: t.IsDelegated}); t.Mechanism {
	case "OAUTHBEARER":
		return oauth.Auth{Token: t.Token}.AsMechanism()
	case "PLAIN":
		return plain.Auth{User: t.User, Pass: t.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return login.AsSha256Mechanism()
	default:
		return login.AsSha512Mechanism()
	}
}
