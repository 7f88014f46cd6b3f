// Stands in for spark-token-provider-kafka-0-10, which Spark's Kafka source is compiled against: delegation tokens are off,
// so settings pass as they are given. For tests only.
package org.apache.spark.kafka010

import java.{util => ju}
import scala.jdk.CollectionConverters._
import org.apache.spark.SparkConf

case class KafkaTokenClusterConf(bootstrapServers: String)

class KafkaConfigUpdater(module: String, params: Map[String, Object]) {
  private val settings = new ju.HashMap[String, Object](params.asJava)

  def set(key: String, value: Object): this.type = { settings.put(key, value); this }
  def setIfUnset(key: String, value: Object): this.type = { settings.putIfAbsent(key, value); this }
  def setAuthenticationConfigIfNeeded(): this.type = this
  def setAuthenticationConfigIfNeeded(cluster: Option[KafkaTokenClusterConf]): this.type = this
  def build(): ju.Map[String, Object] = settings
}

object KafkaTokenUtil {
  def findMatchingTokenClusterConfig(conf: SparkConf, servers: String): Option[KafkaTokenClusterConf] = None
  def needTokenUpdate(params: ju.Map[String, Object], cluster: Option[KafkaTokenClusterConf]): Boolean = false
}

object KafkaRedactionUtil {
  def redactParams(params: Seq[(String, Object)]): Seq[(String, String)] =
    params.map { case (key, value) => (key, if (key.contains("password")) "*********" else String.valueOf(value)) }
}
