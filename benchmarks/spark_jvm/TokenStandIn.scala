// Replaces the artifact spark-token-provider-kafka-0-10, which package registries don't have
// for these releases. The JVM connector uses it for three things: to collect a client's settings,
// to add delegation tokens to them (none exist here), and to choose what may be logged.
// It processes no records, so the measurements compare the connector itself.
package org.apache.spark.kafka010

import java.util

import org.apache.spark.SparkConf

/** A client's settings while the connector adds its own to the user's. */
class KafkaConfigUpdater(module: String, given: Map[String, Object]) {
  private val settings = new util.HashMap[String, Object]()
  given.foreach { case (name, value) => settings.put(name, value) }

  def set(name: String, value: Object): KafkaConfigUpdater = {
    settings.put(name, value)
    this
  }

  def setIfUnset(name: String, value: Object): KafkaConfigUpdater = {
    settings.putIfAbsent(name, value)
    this
  }

  /** Users' own settings for SASL stay as they are; delegation tokens aren't supported. */
  def setAuthenticationConfigIfNeeded(): KafkaConfigUpdater = this

  def setAuthenticationConfigIfNeeded(cluster: Option[AnyRef]): KafkaConfigUpdater = this

  def build(): util.Map[String, Object] = settings
}

/** Logs contain only the names of settings. */
object KafkaRedactionUtil {
  def redactParams(settings: Seq[(String, Object)]): Seq[(String, String)] =
    settings.map { case (name, _) => name -> "(not shown)" }
}

/** There are no delegation tokens. */
object KafkaTokenUtil {
  def findMatchingTokenClusterConfig(conf: SparkConf, servers: String): Option[AnyRef] = None

  def needTokenUpdate(settings: util.Map[String, Object], cluster: Option[AnyRef]): Boolean = false
}
